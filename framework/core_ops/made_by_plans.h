// What ops share that only plans make. For their sources.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

inline constexpr const char* kMadeByPlans = "plans make it after gradients are built";

// Of those that have no place in graphs, and whose kernel the plan knows.
inline OutputTypes shape_by_plans(const ShapeContext& c) {
  c.require(false, "is made by plans, not in graphs");
  return {};
}
inline KernelRun kernel_by_plans(KernelPlan&) { return {}; }

}  // namespace belfry
