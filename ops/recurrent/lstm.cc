#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/recurrent/composed_recurrence_impl.h"
#include "belfry/ops/recurrent/host_recurrence_impl.h"
#include "belfry/ops/recurrent/recurrence_op_impl.h"
#include "belfry/ops/recurrent/recurrent.h"

namespace belfry {
namespace {

using kernels::LstmGradStep;
using kernels::LstmStep;
using recurrent::RecurrenceShapes;

OutputTypes lstm_shape(const ShapeContext& c) {
  const RecurrenceShapes s = recurrent::recurrence_shapes(c, 4, 0, 1, 4);
  recurrent::require_shape(c, 2, s.state, "h");
  recurrent::require_shape(c, 3, s.state, "c");
  return {s.gates, s.vectors, s.vectors, s.state, s.state};
}

OutputTypes lstm_grad_shape(const ShapeContext& c) {
  const RecurrenceShapes s = recurrent::recurrence_shapes(c, 4, 0, 6, 9);
  for (const std::size_t i : {1, 4, 5})
    recurrent::require_shape(c, i, s.vectors, "vectors of each time");
  for (const std::size_t i : {2, 3, 7, 8}) recurrent::require_shape(c, i, s.state, "states");
  return {s.gates, s.vectors, s.state, s.state};
}

// Only second derivatives come by way of activated gates and cell states.
std::vector<Output> lstm_gradient(const Node& node, std::span<const Output> grads) {
  if (grads[0] || grads[2]) return recurrent::gradient_by<recurrent::composed_lstm>(node, grads);
  const auto given = [&](std::size_t i) { return recurrent::given_or_zeros(node, grads, i); };
  const std::vector<Output> inputs =
      recurrent::with_lengths({node.output(0), given(1), given(3), given(4), node.output(2),
                               node.output(1), node.input(1), node.input(2), node.input(3)},
                              node, 4);
  const Node& grad = node.graph().add(kLstmGrad, inputs, {}, node.raw_options());
  std::vector<Output> result(node.inputs().size());
  result[0] = grad.output(0);
  result[1] = recurrent::weight_gradient(grad.output(1), grad.output(0));
  result[2] = grad.output(2);
  result[3] = grad.output(3);
  return result;
}

KernelRun lstm_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernels::recurrence<LstmStep<T>>(plan, recurrent::sequences_of(plan, 1));
  });
}
KernelRun lstm_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return recurrent::plain_kernel(plan, recurrent::sequences_of(plan, 1), LstmStep<T>::kLengths,
                                   kernels::plain_lstm<T>);
  });
}

KernelRun lstm_grad_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernels::recurrence_grad<LstmGradStep<T>>(plan, recurrent::sequences_of(plan, 1));
  });
}
KernelRun lstm_grad_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return recurrent::plain_kernel(plan, recurrent::sequences_of(plan, 1),
                                   LstmGradStep<T>::kLengths, kernels::plain_lstm_grad<T>);
  });
}

}  // namespace

// Each row needs all hidden weights, and nothing of other rows.
const Op kLstm{.name = "Lstm",
               .inputs = kVariadicInputs,
               .shape = lstm_shape,
               .gradient = lstm_gradient,
               .missing_grads = true,
               .heavy = true,
               .work = recurrent::recurrence_work,
               .shards = by_rows<0b11101>,
               .in_place = InPlace::kFirst,
               .cpu = lstm_cpu,
               .reference = lstm_reference,
               .autocast = Autocast::kFull};

const Op kLstmGrad{.name = "LstmGrad",
                   .inputs = kVariadicInputs,
                   .shape = lstm_grad_shape,
                   .gradient = recurrent::gradient_by<recurrent::composed_lstm_grad>,
                   .missing_grads = true,
                   .heavy = true,
                   .work = recurrent::recurrence_work,
                   .shards = by_rows<0b1110111111>,
                   .in_place = InPlace::kFirst,
                   .cpu = lstm_grad_cpu,
                   .reference = lstm_grad_reference};
const StoredOptions<RecurrenceOptions> kStoredLstm(kLstm, kLstmGrad);

}  // namespace belfry
