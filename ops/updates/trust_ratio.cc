#include "belfry/ops/updates/trust_ratio.h"

#include "belfry/ops/updates/square_tree.h"

namespace belfry {
namespace {

OutputTypes trust_ratio_shape(const ShapeContext& c) {
  c.require(c.inputs() == 2 || c.inputs() == 3, "takes two norms and perhaps a factor, not ",
            c.inputs(), " inputs");
  for (std::size_t i = 0; i < 2; ++i)
    c.require(c.dtype(i) == DType::kF64 && c.input(i).rank() == 0, "the norm is ", c.type(i),
              ", but a scalar f64 is needed");
  if (c.inputs() == 3)
    c.require(c.dtype(2) == DType::kF32 && c.input(2).rank() == 0, "the factor is ", c.type(2),
              ", but a scalar f32 is needed");
  return {{Shape{}, DType::kF32}};
}

KernelRun trust_ratio_kernel(KernelPlan&) {
  return [](const KernelPointers& p) {
    *p.output<float>() = kernels::trust_ratio(*p.input<double>(0), *p.input<double>(1),
                                              p.inputs() > 2 ? *p.input<float>(2) : 1.0f);
  };
}

}  // namespace

const Op kTrustRatio{.name = "TrustRatio",
                     .inputs = kVariadicInputs,
                     .shape = trust_ratio_shape,
                     .no_gradient = "it is about updates",
                     .reference = trust_ratio_kernel};

Output trust_ratio(Output variable_norm, Output update_norm, Output factor, At at) {
  std::vector<Output> inputs{variable_norm, update_norm};
  if (factor) inputs.push_back(factor);
  return variable_norm.graph().add(kTrustRatio, inputs, at).output();
}

}  // namespace belfry
