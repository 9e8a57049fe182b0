#include "belfry/ops/recurrent/recurrent.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/recurrent/whole_recurrence.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace {

// The type of recurrences for tensors like x.
DType recurrence_dtype(Output x) { return is_half(x.dtype()) ? DType::kF32 : x.dtype(); }

void require_sequences(const char* what, Output x, const RecurrentWeights& weights, At at) {
  const auto require_input = [&](bool condition, const auto&... why) {
    require(condition, what, " (built at ", at.site, "): ", why...);
  };
  const Shape& shape = x.shape();
  require_input(shape.rank() == 3, "takes [batch, time, features], not ", x.type());
  require_input(shape[1] != kUnknownSize && shape[1] > 0, "the time of ", x.type(),
                " must be known, and at least 1");
  const Shape &w = weights.input.shape(), &u = weights.hidden.shape();
  require_input(w.rank() == 2 && u.rank() == 2 && w[1] == u[1] && shape[2] == w[0], "weights ", w,
                " of ", x.type(), " and ", u, " of h do not fit");
  for (const Output& bias : {weights.input_bias, weights.hidden_bias})
    require_input(!bias || bias.shape() == Shape{w[1]}, "biases must be ", Shape{w[1]}, ", not ",
                  bias ? bias.shape() : Shape{});
}

// The product of all times with the input weights, and `bias`, which may be empty.
Output gates_of(Output x, Output weights, Output bias, At at) {
  const Shape& shape = x.shape();
  const Output rows = reshape(x, {kUnknownSize, shape[2]}, at.site);
  const Output product = matmul(rows, weights, {}, at.site);
  return reshape(bias ? add(product, bias, at.site) : product,
                 {kUnknownSize, shape[1], weights.shape()[1]}, at.site);
}

// The state before the first time.
Output first_state(Output given, Output gates, std::int64_t hidden, At at) {
  if (given) return cast(given, gates.dtype(), at.site);
  const Output like =
      reshape(slice(gates, {0, 0, 0}, {-1, 1, hidden}, at.site), {kUnknownSize, hidden}, at.site);
  return fill_like(like, 0, at.site);
}

// Whether cuDNN may compute it.
bool for_cudnn(const Graph& graph, const RecurrentOptions& options) {
  return options.cudnn && !options.lengths && enclosing_device(graph).is_gpu();
}

void add_lengths(Output lengths, std::vector<Output>& inputs, At at) {
  if (!lengths) return;
  const bool wide = lengths.dtype() == DType::kI64;
  inputs.push_back(wide ? cast(lengths, DType::kI32, at.site) : lengths);
}

}  // namespace

RecurrentResult lstm(Output x, const RecurrentWeights& weights, const RecurrentOptions& options,
                     At at) {
  require_sequences("lstm", x, weights, at);
  if (for_cudnn(x.graph(), options)) return whole_lstm(x, weights, options, at);
  const std::int64_t hidden = weights.hidden.shape()[0];
  Output bias = weights.input_bias;
  if (weights.hidden_bias)
    bias = bias ? add(bias, weights.hidden_bias, at.site) : weights.hidden_bias;
  const DType dtype = recurrence_dtype(x);
  const Output gates = cast(gates_of(x, weights.input, bias, at), dtype, at.site);
  std::vector<Output> inputs{gates, cast(weights.hidden, dtype, at.site),
                             first_state(options.h, gates, hidden, at),
                             first_state(options.c, gates, hidden, at)};
  add_lengths(options.lengths, inputs, at);
  const Node& node =
      x.graph().add(kLstm, inputs, at, NodeOptions(RecurrenceOptions{options.reverse}));
  const auto result = [&](std::size_t i) { return cast(node.output(i), x.dtype(), at.site); };
  return {.y = result(1), .h = result(3), .c = result(4)};
}

RecurrentResult gru(Output x, const RecurrentWeights& weights, const RecurrentOptions& options,
                    At at) {
  require_sequences("gru", x, weights, at);
  require(!options.c, "gru (built at ", at.site, "): has no c, only h");
  if (for_cudnn(x.graph(), options)) return whole_gru(x, weights, options, at);
  const std::int64_t hidden = weights.hidden.shape()[0];
  const DType dtype = recurrence_dtype(x);
  const Output gates = cast(gates_of(x, weights.input, weights.input_bias, at), dtype, at.site);
  const Output bias = weights.hidden_bias ? cast(weights.hidden_bias, dtype, at.site)
                                          : fill(x.graph(), {3 * hidden}, 0, dtype, at.site);
  std::vector<Output> inputs{gates, cast(weights.hidden, dtype, at.site),
                             first_state(options.h, gates, hidden, at), bias};
  add_lengths(options.lengths, inputs, at);
  const Node& node =
      x.graph().add(kGru, inputs, at, NodeOptions(RecurrenceOptions{options.reverse}));
  const auto result = [&](std::size_t i) { return cast(node.output(i), x.dtype(), at.site); };
  return {.y = result(1), .h = result(3)};
}

}  // namespace belfry
