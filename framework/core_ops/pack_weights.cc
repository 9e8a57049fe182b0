#include "belfry/framework/core_ops/pack_weights.h"

namespace belfry {
namespace {

OutputTypes no_shape(const ShapeContext& c) {
  c.require(false, "is made by plans, not in graphs");
  return {};
}

// Its kernel is that of the form.
KernelRun no_kernel(KernelPlan&) { return {}; }

}  // namespace

const Op kPackWeights{.name = "PackWeights",
                      .inputs = 1,
                      .shape = no_shape,
                      .no_gradient = "plans make it after gradients are built",
                      .reference = no_kernel,
                      .cpu_only = "GPUs take weights as they are"};

}  // namespace belfry
