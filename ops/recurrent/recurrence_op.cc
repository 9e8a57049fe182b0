#include <algorithm>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/recurrent/host_recurrence_impl.h"
#include "belfry/ops/recurrent/recurrence_op_impl.h"
#include "belfry/ops/recurrent/recurrent.h"
#include "belfry/ops/reshape.h"

namespace belfry::recurrent {

RecurrenceShapes recurrence_shapes(const ShapeContext& c, std::int64_t gates, std::size_t of_gates,
                                   std::size_t weights, std::size_t last) {
  c.require(c.inputs() == last || c.inputs() == last + 1, "takes ", last, " tensors, or ", last + 1,
            " with lengths, not ", c.inputs());
  c.require_floating(of_gates);
  c.require_rank(of_gates, 3);
  c.require_rank(weights, 2);
  const Shape &x = c.input(of_gates), &u = c.input(weights);
  c.require(u[0] > 0 && u[1] == gates * u[0], "hidden weights must be [hidden, ", gates,
            " * hidden], not ", u);
  RecurrenceShapes shapes{
      .gates = x, .vectors = {x[0], x[1], u[0]}, .state = {x[0], u[0]}, .bias = {gates * u[0]}};
  shapes.gates[2] = u[1];
  require_shape(c, of_gates, shapes.gates, "gates");
  require_shape(c, weights, u, "hidden weights");
  if (c.inputs() > last)
    c.require(c.dtype(last) == DType::kI32 && c.input(last).compatible({x[0]}), "lengths must be ",
              TensorType{{x[0]}, DType::kI32}, ", not ", c.type(last));
  return shapes;
}

void require_shape(const ShapeContext& c, std::size_t i, const Shape& shape,
                   std::string_view what) {
  c.require(c.dtype(i) == c.dtype(0) && c.input(i).compatible(shape), what, " must be ",
            TensorType{shape, c.dtype(0)}, ", not ", c.type(i));
}

OpWork recurrence_work(const WorkContext& c) {
  const Shape& gates = c.outputs[0].shape;
  const double hidden = work_elements(c.outputs.back().shape, 1);
  return {.multiply_adds = work_elements(gates) * hidden,
          .rereads = static_cast<double>(std::max<std::int64_t>(gates[1] - 1, 0)) * hidden *
                     work_elements(gates, 2)};
}

kernels::Sequences sequences_of(const KernelPlan& plan, std::size_t vectors) {
  const Shape& shape = plan.output(vectors).shape;
  return {.rows = shape[0],
          .time = shape[1],
          .hidden = shape[2],
          .reverse = plan.options<RecurrenceOptions>().reverse};
}

KernelRun plain_kernel(const KernelPlan& plan, const kernels::Sequences& s, std::size_t lengths,
                       PlainRecurrence& run) {
  return [s, lengths, &run, &node = plan.node()](const KernelPointers& p) {
    run(s, kernels::checked_lengths(node, s, p, lengths), p);
  };
}

std::vector<Output> with_lengths(std::vector<Output> inputs, const Node& node, std::size_t i) {
  if (node.inputs().size() > i) inputs.push_back(node.input(i));
  return inputs;
}

Output given_or_zeros(const Node& node, std::span<const Output> grads, std::size_t i) {
  return grads[i] ? grads[i] : fill_like(node.output(i), 0, "zeros");
}

Output weight_gradient(Output previous, Output gate_grads) {
  const auto rows = [](Output x) { return reshape(x, {kUnknownSize, x.shape()[2]}); };
  return matmul(rows(previous), rows(gate_grads), {.transpose_a = true});
}

}  // namespace belfry::recurrent
