#include "belfry/framework/core_ops/fused_update.h"

namespace belfry {
namespace {

OutputTypes no_shape(const ShapeContext& c) {
  c.require(false, "is made by plans, not in graphs");
  return {};
}

// Its kernel depends on what was fused: prepare_fused_update() makes it.
KernelRun no_kernel(KernelPlan&) { return {}; }

}  // namespace

const Op kFusedUpdate{.name = "FusedUpdate",
                      .inputs = kVariadic,
                      .shape = no_shape,
                      .no_gradient = "plans make it after gradients are built",
                      .split = Split::kElements,
                      .reference = no_kernel,
                      .cpu_only = "plans make it, where its collective is"};

}  // namespace belfry
