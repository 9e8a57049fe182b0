#include "belfry/ops/loss_scale.h"

#include "belfry/ops/kernels/loss_scale_step.h"

namespace belfry {
namespace {

void require_typed_scalar(const ShapeContext& c, std::size_t i, DType dtype, const char* what) {
  c.require(c.input(i).rank() == 0 && c.dtype(i) == dtype, what, " is ", c.type(i),
            ", but a scalar ", name_of(dtype), " is needed");
}

OutputTypes unscale_shape(const ShapeContext& c) {
  c.require(c.inputs() > 1, "needs a scale and whether gradients are finite");
  require_typed_scalar(c, 0, DType::kF32, "the scale");
  for (std::size_t i = 1; i < c.inputs(); ++i)
    require_typed_scalar(c, i, DType::kBool, "whether gradients are finite");
  return {{Shape{}, DType::kF32}, {Shape{}, DType::kI64}};
}

KernelRun unscale_kernel(KernelPlan&) {
  return [](const KernelPointers& p) {
    bool all = true;
    for (std::size_t i = 1; i < p.inputs(); ++i) all = all && *p.input<bool>(i);
    *p.output<float>(0) = all ? 1 / *p.input<float>(0) : 0;
    *p.output<std::int64_t>(1) = all ? 1 : 0;
  };
}

OutputTypes loss_scale_shape(const ShapeContext& c) {
  require_typed_scalar(c, 0, DType::kF32, "the scale");
  require_typed_scalar(c, 1, DType::kI64, "the count of good steps");
  require_typed_scalar(c, 2, DType::kI64, "whether the update was applied");
  c.require(c.options<LossScaleUpdateOptions>().growth_steps >= 1, "growth_steps must be 1 or ",
            "more, not ", c.options<LossScaleUpdateOptions>().growth_steps);
  return {c.type(0), c.type(1)};
}

KernelRun loss_scale_kernel(KernelPlan& plan) {
  return [growth = plan.options<LossScaleUpdateOptions>().growth_steps](const KernelPointers& p) {
    auto* const scale = p.written<float>(0);
    auto* const good = p.written<std::int64_t>(1);
    const kernels::LossScale now =
        kernels::next({*scale, *good}, *p.input<std::int64_t>(2) != 0, growth);
    *scale = now.scale;
    *good = now.good_steps;
  };
}

}  // namespace

const Op kUnscale{.name = "Unscale",
                  .inputs = kVariadicInputs,
                  .shape = unscale_shape,
                  .no_gradient = "it is about gradients",
                  .reference = unscale_kernel};

const Op kLossScaleUpdate{.name = "LossScaleUpdate",
                          .inputs = 3,
                          .shape = loss_scale_shape,
                          .no_gradient = "it changes a variable",
                          .writes = 2,
                          .reference = loss_scale_kernel};

Unscaling unscale(Output scale, std::span<const Output> finite, At at) {
  std::vector<Output> inputs{scale};
  inputs.insert(inputs.end(), finite.begin(), finite.end());
  Node& node = scale.graph().add(kUnscale, inputs, at);
  return {node.output(0), node.output(1)};
}

Node& update_loss_scale(Variable scale, Variable good_steps, Output applied,
                        LossScaleUpdateOptions options, At at) {
  return applied.graph().add(kLossScaleUpdate, {scale.ref(), good_steps.ref(), applied}, at,
                             NodeOptions(options));
}

}  // namespace belfry
