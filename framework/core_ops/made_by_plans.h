// Shared parts of ops that only plans make, for their sources.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

inline constexpr const char* kMadeByPlans = "plans make it after gradients are built";

// For ops that never occur in graphs; the plan knows their kernels.
inline OutputTypes shape_by_plans(const ShapeContext& c) {
  c.require(false, "is made by plans, not in graphs");
  return {};
}
inline KernelRun kernel_by_plans(KernelPlan&) { return {}; }

}  // namespace belfry
