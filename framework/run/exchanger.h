// The work of the thread that talks to other processes during a run. It follows the command lists
// of all strands of messages at the same time, each one launch by launch. If ranks of GPUs wait for
// other processes, it also checks that these are alive and not late, until the other threads of the
// run have ended.
#pragma once
#include <algorithm>
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
  // Null if the plan needs no other processes. `gpus`: it may wait for their launches; null if the
  // plan has none.
  static std::unique_ptr<Exchanger> make(const LinkedPlan& linked, RunState& run,
                                         const CpuExecutor& cpus, GpuExecutor* gpus);

  // Whether ranks of the plan need other processes.
  bool by_ranks() const { return ranks_ != nullptr; }
  // Call it after tensors have moved.
  void forget_messages();
  // Call it before a run, or without `messages` before ranks connect.
  void begin(bool messages = true);
  // Records that the other threads have ended.
  void end() { ended_.store(true, std::memory_order_release); }
  // Ends when the lists are done, with ranks not before end(), or when the run has failed. Throws
  // nothing: RunState::fail().
  Progress advance(FailureDetector& group) override;
  std::string doing() const override;

 private:
  Exchanger(const LinkedPlan& linked, RunState& run, const CpuExecutor& cpus, GpuExecutor* gpus,
            RankWatch* ranks);
  // The messages of a launch. They are valid as long as its tensors stay in place, which feeds may
  // not.
  struct Known {
    std::vector<const void*> inputs;
    Exchange exchange;
  };
  struct List {
    const std::vector<Command>* commands;  // one of LinkedPlan::exchanges
    std::vector<Known> known;              // by command
    std::size_t next = 0;                  // command
    Exchange* under_way = nullptr;         // messages of the next command; null: not sent yet
    std::chrono::steady_clock::time_point began = {};  // when they were

    bool done() const { return next == commands->size(); }
    const Command& command() const { return (*commands)[next]; }
  };

  // Follows the list up to a command that must wait. Returns whether it made progress.
  bool follow(List& list, FailureDetector& group);
  void start(List& list, FailureDetector& group);
  void finish(List& list);
  Exchange& next_messages(List& list, const KernelPointers& pointers);
  bool all_done() const { return std::ranges::all_of(lists_, &List::done); }
  // The strand whose messages have been under way for the longest time, or null.
  const List* oldest_under_way() const;
  bool awaits_gpus() const;
  void look_at_messages(FailureDetector& group);
  void watch_ranks(FailureDetector& group);

  const LinkedPlan& linked_;
  RunState& run_;
  const CpuExecutor& cpus_;
  GpuExecutor* const gpus_;
  RankWatch* const ranks_;  // null if all ranks belong to this process
  std::atomic<bool> ended_{false};
  bool connects_ = false;     // ranks connect; this is no run
  std::int64_t counted_ = 0;  // how many of RankWatch::enqueued() it has counted
  std::chrono::steady_clock::time_point next_look_;  // when it next looks at waiting ranks
  std::vector<List> lists_;
};

}  // namespace belfry
