// What the thread between processes does in a run: it follows the command list of the strand of
// messages, launch by launch.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "belfry/framework/graph/exchange.h"
#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/run_state.h"

namespace belfry {

class Exchanger final : public Processes::Work {
 public:
  Exchanger(const LinkedPlan& linked, RunState& run) : linked_(linked), run_(run) {}

  // Before a run.
  void begin();
  // Ends when the list is done, or the run has failed. Throws nothing: RunState::fail().
  Progress advance(WatchedGroup& group) override;
  std::string doing() const override;

 private:
  // Each returns whether it came further.
  bool follow(WatchedGroup& group);
  bool finish(WatchedGroup& group);
  void start(LaunchIndex launch, WatchedGroup& group);

  const LinkedPlan& linked_;
  RunState& run_;
  std::size_t next_ = 0;                         // of LinkedPlan::exchanges
  LaunchIndex under_way_;                        // or none
  Exchange exchange_;                            // of that launch
  std::chrono::steady_clock::time_point began_;  // it was
};

}  // namespace belfry
