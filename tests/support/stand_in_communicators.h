// Communicators of a StandInGpus: ranks meet in their streams, the last to come adds up. Those that
// meet with different reductions, as they do where ranks see them in different orders, fail. In a
// capture only a rank alone is served, and segments that hold its part must end first.
#pragma once
#include <condition_variable>
#include <limits>

#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry::test {

// Set by tests while nothing runs; counts start anew with each.
struct NcclFaults {
  static constexpr int kNever = std::numeric_limits<int>::min();
  int fail_at = kNever;         // the call of all_reduce(), of any rank, that throws
  int fail_later_at = kNever;   // the call after which check() throws
  int stall_at = kNever;        // the call that never meets the others, until it is aborted
  int in_progress_at = kNever;  // the call that ends when it hears that the run has failed
  bool fails_to_make = false;
  std::atomic<int> calls{0};
  std::atomic<int> made{0}, aborted{0}, alive{0}, heard{0};
  std::atomic<int> outlived{0};  // communicators that ended before segments which hold their parts

  void reset() {
    fail_at = fail_later_at = stall_at = in_progress_at = kNever;
    fails_to_make = false;
    calls = 0;
  }
};

class StandInCommunicators final : public GpuCommunicators {
 public:
  StandInCommunicators(const StandInGpus& gpus, std::span<const int> ranks);
  ~StandInCommunicators() override;

  void all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                  const std::atomic<bool>& failed) override;
  void check() override;
  void abort_all() noexcept override;

 private:
  // One all-reduce. Ranks are told apart by what they bring.
  struct Meeting {
    RankReduction what;
    std::vector<std::vector<const std::byte*>> from;  // by rank; empty: has not come
    std::vector<std::vector<std::byte*>> to;
    std::size_t came = 0, left = 0;
  };

  void stay_in_progress(const std::atomic<bool>& failed) const;
  void meet(std::size_t rank, std::int64_t number, const RankReduction& what,
            std::vector<const std::byte*> from, std::vector<std::byte*> to, bool stalls);

  const StandInGpus& gpus_;
  std::vector<int> gpu_of_;             // by rank
  std::vector<std::int64_t> enqueued_;  // by rank: how many all-reduces
  std::vector<std::atomic<bool>> busy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Meeting> meetings_;                                 // by number
  const std::shared_ptr<const char> held_ = std::make_shared<const char>();  // by segments
  bool aborted_ = false;
  std::atomic<bool> broken_{false};
};

}  // namespace belfry::test
