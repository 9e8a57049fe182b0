#include <algorithm>
#include <numeric>

#include "belfry/ops/concat.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/recurrent/composed_recurrence_impl.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/ops/shapes/stack.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/split.h"
#include "belfry/ops/square.h"
#include "belfry/ops/tanh.h"

namespace belfry::recurrent {
namespace {

// The times of a recurrence in their order, and the rows that have not ended.
class Walk {
 public:
  // `like` [batch, time, ...]. The lengths are input `last`, or left out.
  Walk(Output like, std::span<const Output> inputs, std::size_t last, bool reverse)
      : order_(static_cast<std::size_t>(like.shape()[1])) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (reverse) std::ranges::reverse(order_);
    if (inputs.size() > last) lengths_ = reshape(inputs[last], {kUnknownSize, 1});
  }

  const std::vector<std::size_t>& forward() const { return order_; }
  std::vector<std::size_t> backward() const { return {order_.rbegin(), order_.rend()}; }
  std::vector<Output> one_per_time() const { return std::vector<Output>(order_.size()); }

  // `next` in rows that have time t, `last` in those that have ended.
  Output go_on(std::size_t t, Output next, Output last) const {
    return lengths_ ? where(greater(lengths_, static_cast<double>(t)), next, last) : next;
  }
  // x [batch, time, n] with zeros where rows have ended.
  Output cut(Output x) const {
    if (!lengths_) return x;
    const auto time = static_cast<std::int64_t>(order_.size());
    const Output t =
        reshape(arange(x.graph(), 0, static_cast<double>(time), 1, DType::kI32), {1, time, 1});
    return where(less(t, reshape(lengths_, {kUnknownSize, 1, 1})), x, 0.0);
  }
  std::vector<Output> times_of(Output x) const { return unstack(cut(x), 1); }
  Output joined(std::span<const Output> times) const { return cut(stack(times, 1)); }

  // x [batch, time, n] as it is before each time, at first `state` [batch, n].
  Output before(Output x, Output state) const {
    const std::vector<Output> after = unstack(x, 1);
    std::vector<Output> result = one_per_time();
    for (const std::size_t t : order_) {
      result[t] = state;
      state = go_on(t, after[t], state);
    }
    return joined(result);
  }

 private:
  std::vector<std::size_t> order_;
  Output lengths_;  // [batch, 1], or empty
};

}  // namespace

std::vector<Output> composed_lstm(std::span<const Output> inputs, bool reverse) {
  const Output u = inputs[1];
  Output h = inputs[2], c = inputs[3];
  const Walk walk(inputs[0], inputs, 4, reverse);
  const std::vector<Output> gates = walk.times_of(inputs[0]);
  std::vector<Output> activated = walk.one_per_time(), y = activated, cells = activated;
  for (const std::size_t t : walk.forward()) {
    const std::vector<Output> sums = split(gates[t] + matmul(h, u), 4, 1);
    const Output i = sigmoid(sums[0]), f = sigmoid(sums[1]), g = tanh(sums[2]),
                 o = sigmoid(sums[3]);
    activated[t] = concat({i, f, g, o}, 1);
    cells[t] = c = walk.go_on(t, f * c + i * g, c);
    y[t] = h = walk.go_on(t, o * tanh(c), h);
  }
  return {walk.joined(activated), walk.joined(y), walk.joined(cells), h, c};
}

std::vector<Output> composed_lstm_grad(std::span<const Output> inputs, bool reverse) {
  const Output cells = inputs[4], u = inputs[6];
  Output dh = inputs[2], dc = inputs[3];
  const Walk walk(cells, inputs, 9, reverse);
  const Output h_before = walk.before(inputs[5], inputs[7]),
               c_before = walk.before(cells, inputs[8]);
  const std::vector<Output> gates = split(inputs[0], 4, 2);
  const Output i = gates[0], f = gates[1], g = gates[2], o = gates[3], squashed = tanh(cells);
  // The gradients of gates are these slopes times dc, dc, dc and dh.
  const Output slopes = concat(
      {g * i * (1 - i), c_before * f * (1 - f), i * (1 - square(g)), squashed * o * (1 - o)}, 2);
  const std::vector<Output> slope = unstack(slopes, 1), kept = unstack(f, 1),
                            to_c = unstack(o * (1 - square(squashed)), 1),
                            dy = walk.times_of(inputs[1]);
  std::vector<Output> grads = walk.one_per_time();
  for (const std::size_t t : walk.backward()) {
    const Output of_h = dh + dy[t], of_c = dc + of_h * to_c[t];
    grads[t] = concat({of_c, of_c, of_c, of_h}, 1) * slope[t];
    dh = walk.go_on(t, matmul(grads[t], u, {.transpose_b = true}), dh);
    dc = walk.go_on(t, of_c * kept[t], dc);
  }
  return {walk.joined(grads), h_before, dh, dc};
}

std::vector<Output> composed_gru(std::span<const Output> inputs, bool reverse) {
  const Output u = inputs[1], bias = inputs[3];
  Output h = inputs[2];
  const Walk walk(inputs[0], inputs, 4, reverse);
  const std::vector<Output> gates = walk.times_of(inputs[0]);
  std::vector<Output> activated = walk.one_per_time(), y = activated, news = activated;
  for (const std::size_t t : walk.forward()) {
    const std::vector<Output> of_x = split(gates[t], 3, 1), of_h = split(matmul(h, u) + bias, 3, 1);
    const Output r = sigmoid(of_x[0] + of_h[0]), z = sigmoid(of_x[1] + of_h[1]),
                 n = tanh(of_x[2] + r * of_h[2]);
    activated[t] = concat({r, z, n}, 1);
    news[t] = of_h[2];
    y[t] = h = walk.go_on(t, (1 - z) * n + z * h, h);
  }
  return {walk.joined(activated), walk.joined(y), walk.joined(news), h};
}

std::vector<Output> composed_gru_grad(std::span<const Output> inputs, bool reverse) {
  const Output news = inputs[3], u = inputs[5];
  Output dh = inputs[2];
  const Walk walk(news, inputs, 7, reverse);
  const Output h_before = walk.before(inputs[4], inputs[6]);
  const std::vector<Output> gates = split(inputs[0], 3, 2);
  const Output r = gates[0], z = gates[1], n = gates[2];
  // The gradients of gates are these slopes times dh.
  const Output of_n = (1 - z) * (1 - square(n)), of_r = of_n * news * r * (1 - r),
               of_z = (h_before - n) * z * (1 - z);
  const std::vector<Output> slope = unstack(concat({of_r, of_z, of_n * r}, 2), 1),
                            kept = unstack(z, 1), dy = walk.times_of(inputs[1]);
  std::vector<Output> of_y = walk.one_per_time(), grads = of_y;
  for (const std::size_t t : walk.backward()) {
    of_y[t] = dh + dy[t];
    grads[t] = concat({of_y[t], of_y[t], of_y[t]}, 1) * slope[t];
    dh = walk.go_on(t, matmul(grads[t], u, {.transpose_b = true}) + of_y[t] * kept[t], dh);
  }
  const Output d = stack(of_y, 1);
  return {walk.cut(concat({d, d, d}, 2) * concat({of_r, of_z, of_n}, 2)), walk.joined(grads),
          h_before, dh};
}

}  // namespace belfry::recurrent
