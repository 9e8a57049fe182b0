#pragma once
#include <functional>

#include "belfry/framework/device/session_options.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

// The session that a plan is compiled for, as passes see it.
struct PlanContext {
  const std::vector<std::unique_ptr<Device>>& devices;
  std::shared_ptr<const Placement> placement;  // of the graph, on these devices
  SessionOptions options = {};
  // The variables that share the storage of this one, the owner first; empty before it has memory.
  std::function<std::vector<const Node*>(const Node&)> sharers = {};
  LockDuration locks = LockDuration::kWholeRun;
  bool gathers_first = false;  // as in PrepareOptions

  const Device& device(int index) const { return *devices[static_cast<std::size_t>(index)]; }
};

// Runs all passes. Throws InvalidArgument for feeds of the wrong type, unordered writes and devices
// that do not exist.
Plan compile(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
             const PlanContext& context);

}  // namespace belfry
