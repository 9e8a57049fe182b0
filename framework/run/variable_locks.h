// The variables that a step of LockDuration::kEachVariable holds, launch by launch. It has one
// worker.
#pragma once
#include <mutex>
#include <vector>

#include "belfry/framework/run/linked_plan.h"

namespace belfry {

class VariableLocks {
 public:
  // For plans of another LockDuration it holds nothing.
  VariableLocks(const LinkedPlan& linked, Runtime& runtime);

  // Before a launch: locks the variables that it touches, unless the launch before has kept them
  // for it. It takes all locks in the order of addresses, so two runs never wait for each other in
  // a circle.
  void hold(LaunchIndex launch) {
    if (!holds_.empty()) lock(launch);
  }
  // After a launch: unlocks them, unless the next launch needs them too.
  void release(LaunchIndex launch) {
    if (!holds_.empty() && !holds_[launch].keeps) release_all();
  }
  // After a failure, too.
  void release_all();

 private:
  struct Hold {
    std::vector<std::mutex*> locks;
    bool keeps = false;  // for the next launch
  };
  void lock(LaunchIndex launch);

  Indexed<Launch, Hold> holds_;
  const Hold* held_ = nullptr;
};

}  // namespace belfry
