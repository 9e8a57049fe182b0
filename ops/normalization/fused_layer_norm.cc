#include "belfry/ops/normalization/fused_layer_norm.h"

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/framework/kernels/widened.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/kernels/reference_of_part.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/normalization/layer_norm_impl.h"

namespace belfry {
namespace {

// y has the type of x, and the sum that of the shortcut.
template <bool centred>
OutputTypes fused_norm_shape(const ShapeContext& c) {
  constexpr std::size_t kFactors = row_norm_factors(centred);
  c.require(c.inputs() > kFactors && c.inputs() <= kFactors + 3,
            "takes those of a norm, and perhaps a shortcut and a bias");
  if (c.inputs() == kFactors + 1) return {c.type(0)};
  return {c.type(0), c.type(1)};
}

template <bool centred>
OutputTypes fused_norm_grad_shape(const ShapeContext& c) {
  c.require(c.inputs() == 3 || c.inputs() == 4,
            "takes those of the gradient of a norm, and perhaps what is added to dx");
  OutputTypes types(1 + row_norm_factors(centred), c.type(2));
  types[0] = c.type(1);
  return types;
}

template <bool centred>
const Op& plain_norm() {
  return centred ? kLayerNorm : kRmsNorm;
}

template <bool centred>
KernelRun fused_norm_reference(KernelPlan& plan) {
  if (has_half(plan)) return row_norm_on_host<centred>(plan);
  const TensorType y = plan.output(), factor = plan.input(plan.inputs() - 1);
  const std::size_t gamma_at = plan.inputs() - row_norm_factors(centred);
  std::vector<TensorType> inputs(1 + row_norm_factors(centred), factor);
  inputs[0] = y;
  return [gamma_at, row = y.shape.product(1, y.shape.rank()),
          add = reference_of_part(kAdd, plan, {y, y}, {y}),
          add_bias = reference_of_part(kAdd, plan, {y, factor}, {y}),
          normalise = reference_of_part(plain_norm<centred>(), plan, inputs, {y})](
             const KernelPointers& p) {
    const auto in = p.mutable_inputs(), out = p.all_outputs();
    void* x = in[0];
    const auto add_to = [&](const KernelRun& sum, void* term, void* to) {
      void* const terms[2] = {x, term};
      sum(KernelPointers(terms, {&to, 1}, nullptr, {p.begin() * row, p.end() * row}, p.step()));
      x = to;
    };
    if (gamma_at > 2) add_to(add_bias, in[2], out[0]);
    if (gamma_at > 1) add_to(add, in[1], out[out.size() - 1]);
    void* normed[3] = {x, in[gamma_at], in[in.size() - 1]};
    normalise(KernelPointers(std::span(normed, 1 + row_norm_factors(centred)), out.first(1),
                             nullptr, {p.begin(), p.end()}, p.step()));
  };
}

template <bool centred>
KernelRun fused_norm_grad_reference(KernelPlan& plan) {
  if (has_half(plan)) return row_norm_gradient_on_host<centred>(plan);
  const TensorType x = plan.output(), factor = plan.output(1);
  std::vector<TensorType> outputs(1 + row_norm_factors(centred), factor);
  outputs[0] = x;
  const Op& grad = centred ? kLayerNormGrad : kRmsNormGrad;
  return
      [all = x.shape.elements(), add = reference_of_part(kAddN, plan, {x, x}, {x}),
       gradient = reference_of_part(grad, plan, {x, x, factor}, outputs)](const KernelPointers& p) {
        const auto in = p.mutable_inputs(), out = p.all_outputs();
        gradient(KernelPointers(in.first(3), out, nullptr, {0, 1}, p.step()));
        if (in.size() < 4) return;
        void* const terms[2] = {out[0], in[3]};
        add(KernelPointers(terms, out.first(1), nullptr, {0, all}, p.step()));
      };
}

Op fused_norm(const char* name, bool centred) {
  return {.name = name,
          .inputs = kVariadicInputs,
          .shape = centred ? fused_norm_shape<true> : fused_norm_shape<false>,
          .no_gradient = kMadeByPlans,
          .split = WorkSplit::kRows,
          .in_place = InPlace::kPairwise,
          .cpu = centred ? row_norm_on_host<true> : row_norm_on_host<false>,
          .reference = centred ? fused_norm_reference<true> : fused_norm_reference<false>,
          .half = true};
}

Op fused_norm_grad(const char* name, bool centred) {
  return {.name = name,
          .inputs = kVariadicInputs,
          .shape = centred ? fused_norm_grad_shape<true> : fused_norm_grad_shape<false>,
          .no_gradient = kMadeByPlans,
          .cpu = centred ? row_norm_gradient_on_host<true> : row_norm_gradient_on_host<false>,
          .reference = centred ? fused_norm_grad_reference<true> : fused_norm_grad_reference<false>,
          .half = true};
}

}  // namespace

const Op kFusedLayerNorm = fused_norm("FusedLayerNorm", true);
const Op kFusedLayerNormGrad = fused_norm_grad("FusedLayerNormGrad", true);
const Op kFusedRmsNorm = fused_norm("FusedRmsNorm", false);
const Op kFusedRmsNormGrad = fused_norm_grad("FusedRmsNormGrad", false);

}  // namespace belfry
