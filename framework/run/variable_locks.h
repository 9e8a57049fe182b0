// Locks the variables of a step of LockDuration::kEachVariable, launch by launch. The step has one
// worker.
#pragma once
#include <mutex>
#include <vector>

#include "belfry/framework/run/linked_plan.h"

namespace belfry {

class VariableLocks {
 public:
  // For plans of another LockDuration it locks nothing.
  VariableLocks(const LinkedPlan& linked, Runtime& runtime);

  // Call it before a launch. It locks the variables that the launch touches, unless the previous
  // launch has kept the locks. It takes locks in the order of addresses, so two runs never
  // deadlock.
  void hold(LaunchIndex launch) {
    if (!holds_.empty()) lock(launch);
  }
  // Call it after a launch. It unlocks the variables, unless the next launch needs them too.
  void release(LaunchIndex launch) {
    if (!holds_.empty() && !holds_[launch].keeps) release_all();
  }
  // Call it after a failure, too.
  void release_all();

 private:
  struct Hold {
    std::vector<std::mutex*> locks;
    bool keeps = false;  // the locks, for the next launch
  };
  void lock(LaunchIndex launch);

  Indexed<Launch, Hold> holds_;
  const Hold* held_ = nullptr;
};

}  // namespace belfry
