// What the thread between processes does in a run: it follows the command list of the strand of
// messages, launch by launch. Where ranks of GPUs wait for other processes, it also looks whether
// these live and come in time. It does so until the other threads of the run have ended.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/run_state.h"

namespace belfry {

class CpuExecutor;
class GpuExecutor;
class RankWatch;

class Exchanger final : public Processes::Work {
 public:
  // Null if the plan needs no other processes. `gpus`: for whose launches it may wait; null if the
  // plan has none.
  static std::unique_ptr<Exchanger> make(const LinkedPlan& linked, RunState& run,
                                         const CpuExecutor& cpus, GpuExecutor* gpus);

  // Whether ranks of the plan need other processes.
  bool by_ranks() const { return ranks_ != nullptr; }
  // After tensors have moved.
  void forget_messages() { known_.assign(known_.size(), {}); }
  // Before a run; without messages, before ranks connect.
  void begin(bool messages = true);
  // The other threads have ended.
  void end() { ended_.store(true, std::memory_order_release); }
  // Ends when the list is done, and with ranks after end(), or when the run has failed. Throws
  // nothing: RunState::fail().
  Progress advance(WatchedGroup& group) override;
  void sleep(std::chrono::milliseconds most) override { run_.messages().sleep(most); }
  std::string doing() const override;

 private:
  Exchanger(const LinkedPlan& linked, RunState& run, const CpuExecutor& cpus, GpuExecutor* gpus,
            RankWatch* ranks);
  // Each returns whether it came further.
  bool follow(WatchedGroup& group);
  bool finish(WatchedGroup& group);
  bool awaits_worker() const;
  void watch_ranks(WatchedGroup& group);
  void start(LaunchIndex launch, WatchedGroup& group);
  // Of the launch that is next.
  Exchange& next_messages(LaunchIndex launch, const KernelPointers& pointers);

  const LinkedPlan& linked_;
  RunState& run_;
  const CpuExecutor& cpus_;
  GpuExecutor* const gpus_;
  RankWatch* const ranks_;  // null if they are of this process alone
  std::atomic<bool> ended_{false};
  bool connects_ = false;                            // instead of a run
  std::int64_t counted_ = 0;                         // of RankWatch::enqueued()
  std::chrono::steady_clock::time_point next_look_;  // at ranks that wait
  std::size_t next_ = 0;                             // of LinkedPlan::exchanges
  LaunchIndex under_way_;                            // or none
  Exchange* exchange_ = nullptr;                     // of that launch
  std::chrono::steady_clock::time_point began_;      // it was
  // Messages of each launch, as long as its tensors stay where they are: feeds need not.
  struct Known {
    std::vector<const void*> inputs;
    Exchange exchange;
  };
  std::vector<Known> known_;  // by place in LinkedPlan::exchanges
};

}  // namespace belfry
