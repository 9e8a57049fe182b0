#include "belfry/ops/recurrent/whole_recurrence.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/recurrent/whole_recurrence_impl.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace recurrent {

Whole::Whole(const KernelPlan& plan)
    : node(plan.node()),
      dtype(plan.dtype()),
      gradient(&plan.op() == &kWholeLstmGrad || &plan.op() == &kWholeGruGrad),
      has_c(&plan.op() == &kWholeLstm || &plan.op() == &kWholeLstmGrad),
      reverse(plan.options<RecurrenceOptions>().reverse),
      rows(plan.input(0).shape[0]),
      time(plan.input(0).shape[1]),
      features(plan.input(0).shape[2]),
      hidden(plan.input(2).shape[0]),
      columns(plan.input(2).shape[1]) {}

std::int64_t Whole::saved_bytes() const { return bytes(rows * saved_columns(has_c, time, hidden)); }

InnerPlan::InnerPlan(const Node& node, const Op& op, std::vector<TensorType> in,
                     std::vector<TensorType> out)
    : inputs(std::move(in)),
      outputs(std::move(out)),
      plan(node, inputs, outputs, whole_range(op, 0, inputs, outputs)) {
  plan.set_op(op);
}

std::vector<TensorType> inputs_of_rest(const Whole& w) {
  const TensorType gates{{w.rows, w.time, w.columns}, w.dtype};
  const TensorType vectors{{w.rows, w.time, w.hidden}, w.dtype};
  const TensorType weights{{w.hidden, w.columns}, w.dtype}, state{{w.rows, w.hidden}, w.dtype};
  if (!w.gradient && w.has_c) return {gates, weights, state, state};
  if (!w.gradient) return {gates, weights, state, {{w.columns}, w.dtype}};
  if (w.has_c) return {gates, vectors, state, state, vectors, vectors, weights, state, state};
  return {gates, vectors, state, vectors, vectors, weights, state};
}

std::vector<TensorType> outputs_of_rest(const Whole& w) {
  const TensorType gates{{w.rows, w.time, w.columns}, w.dtype};
  const TensorType vectors{{w.rows, w.time, w.hidden}, w.dtype};
  const TensorType state{{w.rows, w.hidden}, w.dtype};
  std::vector<TensorType> types{gates, vectors};
  if (!w.gradient) types.push_back(vectors);
  if (w.gradient && !w.has_c) types.insert(types.begin(), gates);
  types.insert(types.end(), w.states(), state);
  return types;
}

void* second_part_of(const Whole& w, const void* saved) {
  const auto* const start = static_cast<const std::byte*>(saved);
  return const_cast<std::byte*>(start) + w.bytes(w.vectors() * w.columns);
}

std::vector<void*> inputs_of_rest(const Whole& w, const KernelPointers& p,
                                  const RestMemory& memory) {
  const auto in = [&](std::size_t i) { return p.mutable_inputs()[i]; };
  if (!w.gradient) return {memory.gates, in(2), in(5), in(w.has_c ? 6 : 4)};
  void* const saved = in(w.saved());
  void* const second = second_part_of(w, saved);
  if (w.has_c)
    return {saved, in(w.dy()), in(w.dh()), in(w.dh() + 1), second, in(w.y()), in(2), in(5), in(6)};
  return {saved, in(w.dy()), in(w.dh()), second, in(w.y()), in(2), in(5)};
}

std::vector<void*> outputs_of_rest(const Whole& w, const KernelPointers& p,
                                   const RestMemory& memory) {
  const auto out = [&](std::size_t i) { return p.all_outputs()[i]; };
  std::vector<void*> all;
  if (!w.gradient)
    all = {memory.gates, out(0), second_part_of(w, out(1))};
  else if (w.has_c)
    all = {memory.gates, memory.before};
  else
    all = {memory.gates, memory.hidden_gates, memory.before};
  for (std::size_t i = 0; i < w.states(); ++i) all.push_back(out((w.gradient ? 5 : 2) + i));
  return all;
}

}  // namespace recurrent

namespace whole_recurrence {
namespace {

using recurrent::InnerPlan;
using recurrent::RestMemory;
using recurrent::Whole;

// x, weights, biases and states, which come first in all four ops.
struct Operands {
  std::int64_t columns;
  OutputTypes types;
};

Operands operands(const ShapeContext& c, bool has_c) {
  // The second output is not only numbers, so it cannot be rounded.
  c.require(c.dtype() == DType::kF32 || c.dtype() == DType::kF64, "takes f32 or f64, not ",
            c.type(0));
  c.require_rank(0, 3);
  c.require_rank(2, 2);
  const Shape &x = c.input(0), &u = c.input(2);
  const std::int64_t hidden = u[0], columns = (has_c ? 4 : 3) * hidden;
  c.require(hidden > 0 && x[2] > 0, "needs features and hidden units, not x ", x,
            " and hidden weights ", u);
  c.require(x[1] != kUnknownSize && x[1] > 0, "the time of ", c.type(0),
            " must be known, and at least 1");
  Operands all{columns, {x, {{x[2], columns}}, {{hidden, columns}}, {{columns}}, {{columns}}}};
  all.types.insert(all.types.end(), has_c ? 2 : 1, Shape{x[0], hidden});
  return all;
}

void require_types(const ShapeContext& c, std::size_t first, const OutputTypes& types) {
  for (std::size_t i = 0; i < types.size(); ++i)
    c.require(c.dtype(first + i) == c.dtype() && c.input(first + i).compatible(types[i].shape),
              "input ", first + i, " must be ", TensorType{types[i].shape, c.dtype()}, ", not ",
              c.type(first + i));
}

template <bool has_c>
OutputTypes forward_shape(const ShapeContext& c) {
  c.require(c.inputs() == (has_c ? 7 : 6), "takes ", has_c ? 7 : 6, " tensors, not ", c.inputs());
  const Operands of = operands(c, has_c);
  require_types(c, 0, of.types);
  const Shape &x = c.input(0), &state = of.types.back().shape;
  const std::int64_t hidden = state[1];
  OutputTypes types{{Shape{x[0], x[1], hidden}},
                    {Shape{x[0], recurrent::saved_columns(has_c, x[1], hidden)}}};
  types.insert(types.end(), has_c ? 2 : 1, state);
  return types;
}

template <bool has_c>
OutputTypes gradient_shape(const ShapeContext& c) {
  c.require(c.inputs() == (has_c ? 12 : 10), "takes ", has_c ? 12 : 10, " tensors, not ",
            c.inputs());
  Operands of = operands(c, has_c);
  const Shape &x = c.input(0), state = of.types.back().shape;
  const Shape vectors{x[0], x[1], state[1]};
  OutputTypes all = of.types;
  all.insert(all.end(),
             {vectors, Shape{x[0], recurrent::saved_columns(has_c, x[1], state[1])}, vectors});
  all.insert(all.end(), has_c ? 2 : 1, state);
  require_types(c, 0, all);
  return std::move(of.types);
}

std::vector<Output> gradient(const Node& node, std::span<const Output> grads) {
  const bool has_c = &node.op() == &kWholeLstm;
  std::vector<Output> inputs(node.inputs().begin(), node.inputs().end());
  inputs.insert(inputs.end(), {node.output(0), node.output(1), grads[0], grads[2]});
  if (has_c) inputs.push_back(grads[3]);
  const Node& grad =
      node.graph().add(has_c ? kWholeLstmGrad : kWholeGruGrad, inputs, {}, node.raw_options());
  std::vector<Output> result;
  for (std::size_t i = 0; i < node.inputs().size(); ++i) result.push_back(grad.output(i));
  return result;
}

// c [m, n] = the sum over p < k of a(i, p) b(p, j), in f64.
template <class T, class A, class B>
void plain_product(std::int64_t m, std::int64_t n, std::int64_t k, const A& a, const B& b, T* c) {
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += static_cast<double>(a(i, p)) * static_cast<double>(b(p, j));
      c[i * n + j] = static_cast<T>(sum);
    }
}

// The kernel of the rest by plain loops.
KernelRun plain_rest(const Whole& w) {
  InnerPlan rest(w.node, w.rest(), inputs_of_rest(w), outputs_of_rest(w));
  return w.rest().reference(rest.plan);
}

void run_rest(const KernelRun& rest, const Whole& w, const KernelPointers& p,
              const RestMemory& memory) {
  const std::vector<void*> in = inputs_of_rest(w, p, memory), out = outputs_of_rest(w, p, memory);
  rest(KernelPointers(in, out, nullptr, {0, 1}, p.step()));
}

KernelRun reference(KernelPlan& plan) {
  const Whole w(plan);
  return typed_kernel(plan, [w, rest = plain_rest(w)]<class T>(T, const KernelPointers& p) {
    T* const gates = p.output<T>(1);
    const T *const bias = p.input<T>(3), *const of_h = p.input<T>(4);
    const std::int64_t last = w.features;  // the place of the bias in the sums
    plain_product(
        w.vectors(), w.columns, w.features + 1,
        [&](std::int64_t i, std::int64_t k) {
          return k == last ? 1.0 : static_cast<double>(p.input<T>(0)[i * w.features + k]);
        },
        [&](std::int64_t k, std::int64_t j) {
          if (k < last) return static_cast<double>(p.input<T>(1)[k * w.columns + j]);
          return static_cast<double>(bias[j]) + (w.has_c ? static_cast<double>(of_h[j]) : 0);
        },
        gates);
    run_rest(rest, w, p, {.gates = gates});
  });
}

KernelRun gradient_reference(KernelPlan& plan) {
  const Whole w(plan);
  return typed_kernel(plan, [w, rest = plain_rest(w)]<class T>(T, const KernelPointers& p) {
    const auto vectors = [&](std::int64_t n) {
      return std::vector<T>(static_cast<std::size_t>(w.vectors() * n));
    };
    std::vector<T> of_x = vectors(w.columns), of_gates = vectors(w.has_c ? 0 : w.columns),
                   before = vectors(w.hidden);
    run_rest(rest, w, p,
             {.gates = of_x.data(), .hidden_gates = of_gates.data(), .before = before.data()});
    const T* const of_h = w.has_c ? of_x.data() : of_gates.data();
    // A matrix of `columns` columns, and its transpose.
    const auto rows_of = [](const T* x, std::int64_t columns) {
      return [=](std::int64_t i, std::int64_t j) { return x[i * columns + j]; };
    };
    const auto columns_of = [](const T* x, std::int64_t columns) {
      return [=](std::int64_t i, std::int64_t j) { return x[j * columns + i]; };
    };
    const auto one = [](std::int64_t, std::int64_t) { return 1; };
    const std::int64_t n = w.vectors(), columns = w.columns;
    const auto grads_of_x = rows_of(of_x.data(), columns), grads_of_h = rows_of(of_h, columns);
    plain_product(n, w.features, columns, grads_of_x, columns_of(p.input<T>(1), columns),
                  p.output<T>(0));
    plain_product(w.features, columns, n, columns_of(p.input<T>(0), w.features), grads_of_x,
                  p.output<T>(1));
    plain_product(w.hidden, columns, n, columns_of(before.data(), w.hidden), grads_of_h,
                  p.output<T>(2));
    plain_product(1, columns, n, one, grads_of_x, p.output<T>(3));
    plain_product(1, columns, n, one, grads_of_h, p.output<T>(4));
  });
}

// The inputs of the op, in the type that it computes in.
std::vector<Output> inputs_of(Output x, const RecurrentWeights& weights, Output h, bool has_c,
                              Output c, SourceLine site) {
  Graph& graph = x.graph();
  const DType dtype = is_half(x.dtype()) ? DType::kF32 : x.dtype();
  const Shape& u = weights.hidden.shape();
  const auto typed = [&](Output given) { return cast(given, dtype, site); };
  const auto bias = [&](Output given) {
    return given ? typed(given) : fill(graph, {u[1]}, 0, dtype, site);
  };
  const auto state = [&](Output given) {
    if (given) return typed(given);
    const Output column = reshape(slice(x, {0, 0, 0}, {-1, 1, 1}, site), {kUnknownSize, 1}, site);
    return add(fill_like(typed(column), 0, site), fill(graph, {1, u[0]}, 0, dtype, site), site);
  };
  std::vector<Output> inputs{typed(x),
                             typed(weights.input),
                             typed(weights.hidden),
                             bias(weights.input_bias),
                             bias(weights.hidden_bias),
                             state(h)};
  if (has_c) inputs.push_back(state(c));
  return inputs;
}

RecurrentResult build(const Op& op, Output x, const RecurrentWeights& weights,
                      const RecurrentOptions& options, At at) {
  const bool has_c = &op == &kWholeLstm;
  require(!options.lengths, op.name, " (built at ", at.site, "): takes no lengths");
  require(has_c || !options.c, op.name, " (built at ", at.site, "): has no c, only h");
  const Node& node = x.graph().add(op, inputs_of(x, weights, options.h, has_c, options.c, at.site),
                                   at, NodeOptions(RecurrenceOptions{options.reverse}));
  const auto result = [&](std::size_t i) { return cast(node.output(i), x.dtype(), at.site); };
  RecurrentResult all{.y = result(0), .h = result(2)};
  if (has_c) all.c = result(3);
  return all;
}

// Forward: products with x and h. Backward: two of each.
OpWork work(const WorkContext& c) {
  const Shape &x = c.inputs[0].shape, &u = c.node.input(2).shape();
  const bool gradient = &c.node.op() == &kWholeLstmGrad || &c.node.op() == &kWholeGruGrad;
  const double rows = work_elements(x) / work_elements(Shape{x[2]});
  return {.multiply_adds = (gradient ? 2 : 1) * rows * work_elements(Shape{u[1]}) *
                           (work_elements(Shape{x[2]}) + work_elements(Shape{u[0]}))};
}

constexpr const char* kNoSecond =
    "second derivatives of whole recurrences are not supported; leave RecurrentOptions::cudnn out";

}  // namespace
}  // namespace whole_recurrence

// They run on GPUs, which have one shard each, so they need no rule for shards.
const Op kWholeLstm{.name = "WholeLstm",
                    .inputs = kVariadicInputs,
                    .shape = whole_recurrence::forward_shape<true>,
                    .gradient = whole_recurrence::gradient,
                    .heavy = true,
                    .work = whole_recurrence::work,
                    .reference = whole_recurrence::reference,
                    .autocast = Autocast::kFull};
const Op kWholeGru{.name = "WholeGru",
                   .inputs = kVariadicInputs,
                   .shape = whole_recurrence::forward_shape<false>,
                   .gradient = whole_recurrence::gradient,
                   .heavy = true,
                   .work = whole_recurrence::work,
                   .reference = whole_recurrence::reference,
                   .autocast = Autocast::kFull};
const Op kWholeLstmGrad{.name = "WholeLstmGrad",
                        .inputs = kVariadicInputs,
                        .shape = whole_recurrence::gradient_shape<true>,
                        .no_gradient = whole_recurrence::kNoSecond,
                        .heavy = true,
                        .work = whole_recurrence::work,
                        .reference = whole_recurrence::gradient_reference};
const Op kWholeGruGrad{.name = "WholeGruGrad",
                       .inputs = kVariadicInputs,
                       .shape = whole_recurrence::gradient_shape<false>,
                       .no_gradient = whole_recurrence::kNoSecond,
                       .heavy = true,
                       .work = whole_recurrence::work,
                       .reference = whole_recurrence::gradient_reference};

RecurrentResult whole_lstm(Output x, const RecurrentWeights& weights,
                           const RecurrentOptions& options, At at) {
  return whole_recurrence::build(kWholeLstm, x, weights, options, at);
}

RecurrentResult whole_gru(Output x, const RecurrentWeights& weights,
                          const RecurrentOptions& options, At at) {
  return whole_recurrence::build(kWholeGru, x, weights, options, at);
}

}  // namespace belfry
