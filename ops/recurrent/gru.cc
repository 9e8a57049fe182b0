#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/recurrent/composed_recurrence_impl.h"
#include "belfry/ops/recurrent/host_recurrence_impl.h"
#include "belfry/ops/recurrent/recurrence_op_impl.h"
#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/ops/reduce.h"

namespace belfry {
namespace {

using kernels::GruGradStep;
using kernels::GruStep;
using recurrent::RecurrenceShapes;

OutputTypes gru_shape(const ShapeContext& c) {
  const RecurrenceShapes s = recurrent::recurrence_shapes(c, 3, 0, 1, 4);
  recurrent::require_shape(c, 2, s.state, "h");
  recurrent::require_shape(c, 3, s.bias, "the hidden bias");
  return {s.gates, s.vectors, s.vectors, s.state};
}

OutputTypes gru_grad_shape(const ShapeContext& c) {
  const RecurrenceShapes s = recurrent::recurrence_shapes(c, 3, 0, 5, 7);
  for (const std::size_t i : {1, 3, 4})
    recurrent::require_shape(c, i, s.vectors, "vectors of each time");
  for (const std::size_t i : {2, 6}) recurrent::require_shape(c, i, s.state, "states");
  return {s.gates, s.gates, s.vectors, s.state};
}

// Only second derivatives come by way of activated gates and new gates.
std::vector<Output> gru_gradient(const Node& node, std::span<const Output> grads) {
  if (grads[0] || grads[2]) return recurrent::gradient_by<recurrent::composed_gru>(node, grads);
  const auto given = [&](std::size_t i) { return recurrent::given_or_zeros(node, grads, i); };
  const std::vector<Output> inputs =
      recurrent::with_lengths({node.output(0), given(1), given(3), node.output(2), node.output(1),
                               node.input(1), node.input(2)},
                              node, 4);
  const Node& grad = node.graph().add(kGruGrad, inputs, {}, node.raw_options());
  std::vector<Output> result(node.inputs().size());
  result[0] = grad.output(0);
  result[1] = recurrent::weight_gradient(grad.output(2), grad.output(1));
  result[2] = grad.output(3);
  result[3] = reduce_sum(grad.output(1), {0, 1});
  return result;
}

KernelRun gru_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernels::recurrence<GruStep<T>>(plan, recurrent::sequences_of(plan, 1));
  });
}
KernelRun gru_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return recurrent::plain_kernel(plan, recurrent::sequences_of(plan, 1), GruStep<T>::kLengths,
                                   kernels::plain_gru<T>);
  });
}

KernelRun gru_grad_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernels::recurrence_grad<GruGradStep<T>>(plan, recurrent::sequences_of(plan, 2));
  });
}
KernelRun gru_grad_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return recurrent::plain_kernel(plan, recurrent::sequences_of(plan, 2), GruGradStep<T>::kLengths,
                                   kernels::plain_gru_grad<T>);
  });
}

}  // namespace

const Op kGru{.name = "Gru",
              .inputs = kVariadicInputs,
              .shape = gru_shape,
              .gradient = gru_gradient,
              .missing_grads = true,
              .heavy = true,
              .work = recurrent::recurrence_work,
              .shards = by_rows<0b10101>,
              .in_place = InPlace::kFirst,
              .cpu = gru_cpu,
              .reference = gru_reference,
              .autocast = Autocast::kFull};

const Op kGruGrad{.name = "GruGrad",
                  .inputs = kVariadicInputs,
                  .shape = gru_grad_shape,
                  .gradient = recurrent::gradient_by<recurrent::composed_gru_grad>,
                  .missing_grads = true,
                  .heavy = true,
                  .work = recurrent::recurrence_work,
                  .shards = by_rows<0b11011111>,
                  .in_place = InPlace::kFirst,
                  .cpu = gru_grad_cpu,
                  .reference = gru_grad_reference};
const StoredOptions<RecurrenceOptions> kStoredGru(kGru, kGruGrad);

}  // namespace belfry
