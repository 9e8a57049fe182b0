// Timings of several ways to do something, taken in turns.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace belfry {

// Ways to do something are timed in rounds over all of them (A B C A B C), so that slow spells of
// the machine hit all alike.
class Interleaved {
 public:
  // Ways of several processes work together, so each must be called equally often in all: no number
  // of calls depends on time then.
  void count_alike() { counts_alike_ = true; }

  // Adds a way; `work` does it once. Returns its number, from 0.
  int add(std::function<void()> work);

  // Calls `f` behind calls of the ways, untimed, with how many of about `all` have been made.
  void on_call(std::function<void(std::int64_t made, std::int64_t all)> f);

  // Calls each `warmup` times, then times `iterations` calls of each, in up to five rounds. In a
  // round each is called, once or for 100 us, before the first timed call. Then its data are in the
  // caches and the workers of the others asleep. Timed calls of a way that together take more than
  // `seconds` are fewer, at least one in each round; after count_alike() neither depends on time.
  // Throws what `work` throws.
  void run(int warmup, int iterations, double seconds = std::numeric_limits<double>::infinity());

  // The seconds of one call: the median over all calls, and the median of each round.
  double seconds(int way) const;
  std::vector<double> rounds(int way) const;

 private:
  struct Way {
    std::function<void()> work;
    std::vector<std::vector<double>> samples;  // [round]
  };
  void note_call();

  std::vector<Way> ways_;
  bool counts_alike_ = false;
  std::function<void(std::int64_t, std::int64_t)> on_call_;
  std::int64_t made_ = 0, all_ = 0;  // calls of the current run; none to settle a round
};

}  // namespace belfry
