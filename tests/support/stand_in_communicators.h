// Communicators of a StandInGpus: ranks meet in their streams, and the last to come adds up. If
// ranks see reductions in different orders, they meet with different ones, and fail. In a capture
// only ranks of one process are served, and segments that hold their parts must end first.
#pragma once
#include <condition_variable>
#include <functional>
#include <limits>

#include "belfry/framework/graph/exchange.h"
#include "belfry/tests/support/stand_in_capture.h"
#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry::test {

// Tests set it while nothing runs; counts start anew with each.
struct NcclFaults {
  static constexpr int kNever = std::numeric_limits<int>::min();
  int fail_at = kNever;         // the call of all_reduce(), of any rank, that throws
  int fail_later_at = kNever;   // the call after which check() throws
  int stall_at = kNever;        // the call that never meets the others, until it is aborted
  int in_progress_at = kNever;  // the call that ends when it hears that the run has failed
  bool fails_to_make = false;
  // What is done for a rank: by a thread of its process, or, kWork, by its GPU.
  enum class Call : std::uint8_t { kMake, kEnqueue, kWork, kCheck, kEnd };
  // Asked before each, by several threads at once; null: never. It may wait. True: the process dies
  // here, so that the rank does not come to the others. With several ranks, the first one counts.
  std::function<bool(int rank, Call call)> dies = nullptr;
  std::atomic<int> calls{0};
  std::atomic<int> made{0}, aborted{0}, alive{0}, heard{0};
  std::atomic<int> outlived{0};  // communicators that ended before segments that hold their parts

  void reset() {
    fail_at = fail_later_at = stall_at = in_progress_at = kNever;
    fails_to_make = false;
    dies = nullptr;
    calls = 0;
  }
};

// The place where the ranks of all processes meet.
class RankMeetings {
 public:
  explicit RankMeetings(std::size_t ranks) : ranks_(ranks) {}

  std::size_t ranks() const { return ranks_; }
  // Waits until all ranks have come, as making communicators does. False if `failed` is set first.
  bool join(std::size_t ranks, const std::atomic<bool>& failed);
  // The part of one rank: tensors to be reduced, or messages.
  struct Part {
    RankReduction what;
    std::vector<const std::byte*> from = {};
    std::vector<std::byte*> to = {};
    Exchange messages = {};
    bool exchanges = false;
  };
  // Brings the part of a rank to meeting `number`. Waits for all ranks, or until `aborted`.
  void meet(std::size_t rank, std::int64_t number, Part part, bool stalls, const bool& aborted);
  // Sets the flag, which meet() looks at. Ranks of other processes still wait for the one that is
  // gone.
  void abort(bool& aborted);

 private:
  struct Meeting {
    std::vector<Part> parts = {};  // by rank
    std::string node = {};
    RankReduction what = {};
    std::size_t came = 0, left = 0;
    bool done = false;
  };

  const std::size_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t joined_ = 0;
  bool broken_ = false;                       // a rank is gone
  std::map<std::int64_t, Meeting> meetings_;  // by number
};

class StandInCommunicators final : public GpuCommunicators {
 public:
  // Communicators of `ranks`. The first of them is rank `first` of all that meet.
  StandInCommunicators(const StandInGpus& gpus, std::span<const int> ranks,
                       std::shared_ptr<RankMeetings> all, int first,
                       const std::atomic<bool>& failed);
  ~StandInCommunicators() override;

  void all_reduce(const RankReduction& what, std::span<const RankTensors> ranks,
                  const std::atomic<bool>& failed) override;
  void exchange(const Node& node, const Exchange& what, int rank, GpuStream& stream,
                const std::atomic<bool>& failed) override;
  void check() override;
  void abort_all() noexcept override;

 private:
  void enqueue(std::size_t rank, GpuStream& stream, RankMeetings::Part part,
               std::vector<Access> accesses, const std::atomic<bool>& failed);
  void stay_in_progress(const std::atomic<bool>& failed) const;
  bool dies_at(std::size_t rank, NcclFaults::Call call) const;

  const StandInGpus& gpus_;
  std::vector<int> gpu_of_;             // by rank
  std::vector<std::int64_t> enqueued_;  // parts so far, by rank
  std::vector<std::atomic<bool>> busy_;
  const std::shared_ptr<RankMeetings> all_;
  const std::size_t first_;
  const std::shared_ptr<const char> held_ = std::make_shared<const char>();  // segments hold it
  bool aborted_ = false;
  std::atomic<bool> broken_{false};
};

}  // namespace belfry::test
