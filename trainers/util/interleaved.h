#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "belfry/trainers/util/clock.h"

namespace belfry {

// Times several ways to do something, in rounds over all of them (A B C A B C), so that slow spells
// of the machine hit all alike.
class Interleaved {
 public:
  // `now` tells the time in seconds.
  explicit Interleaved(double (*now)() = seconds_now) : now_(now) {}

  // Call it if several processes time the same ways together. Each process must then call a way
  // equally often, so no number of calls depends on time.
  void count_alike() { counts_alike_ = true; }

  // Adds a way; `work` does it once. Returns its number, from 0.
  int add(std::function<void()> work);

  // Calls f(made, all) between calls of the ways, untimed: `made` of about `all` calls are done.
  void on_call(std::function<void(std::int64_t made, std::int64_t all)> f);

  // Calls each way `warmup` times, then times `iterations` calls of each, in up to five rounds. In
  // a round each way runs untimed before its first timed call, once or for 100 us. Then its data
  // are in the caches, and the workers of other ways sleep. If the timed calls of a way take more
  // than `seconds` together, it gets fewer of them, but at least one in each round. After
  // count_alike() no number of calls depends on time. Throws what `work` throws.
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
  void settle(const std::function<void()>& work) const;

  double (*const now_)();
  std::vector<Way> ways_;
  bool counts_alike_ = false;
  std::function<void(std::int64_t, std::int64_t)> on_call_;
  std::int64_t made_ = 0, all_ = 0;  // calls of this run, without the untimed ones of rounds
};

}  // namespace belfry
