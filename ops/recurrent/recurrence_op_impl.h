// What the ops of LSTM and GRU share: their shape functions, and the kernels' sizes.
#pragma once
#include <functional>
#include <string_view>

#include "belfry/framework/graph/op_work.h"
#include "belfry/ops/recurrent/plain_recurrence_impl.h"

namespace belfry::recurrent {

// The shapes of a recurrence with `gates` gates.
struct RecurrenceShapes {
  Shape gates;    // [batch, time, gates * hidden]
  Shape vectors;  // [batch, time, hidden]
  Shape state;    // [batch, hidden]
  Shape bias;     // [gates * hidden]
};

// Checks gates, or tensors like them, and hidden weights. `last`: the place of the lengths, which
// may be left out.
RecurrenceShapes recurrence_shapes(const ShapeContext& c, std::int64_t gates, std::size_t of_gates,
                                   std::size_t weights, std::size_t last);
void require_shape(const ShapeContext& c, std::size_t i, const Shape& shape, std::string_view what);

// The work of all four ops: gates are output 0, and the last output is a state.
OpWork recurrence_work(const WorkContext& c);

// The sizes of a kernel whose output 1 is y, or h before each time.
kernels::Sequences sequences_of(const KernelPlan& plan, std::size_t vectors);

using PlainRecurrence = void(const kernels::Sequences&, const kernels::Lengths&,
                             const KernelPointers&);
KernelRun plain_kernel(const KernelPlan& plan, const kernels::Sequences& sequences,
                       std::size_t lengths, PlainRecurrence& run);

// The inputs of a gradient node: `inputs`, and the lengths that input `i` of `node` may be.
std::vector<Output> with_lengths(std::vector<Output> inputs, const Node& node, std::size_t i);
// The gradient of output i of `node`: zeros if it has none.
Output given_or_zeros(const Node& node, std::span<const Output> grads, std::size_t i);
// The gradient of hidden weights: `previous` [batch, time, hidden] transposed times the gradients
// of gates.
Output weight_gradient(Output previous, Output gate_grads);

}  // namespace belfry::recurrent
