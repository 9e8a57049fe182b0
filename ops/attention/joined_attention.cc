#include "belfry/ops/attention/joined_attention.h"

#include <optional>

#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/framework/plan/surroundings.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/attention_impl.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/split.h"

namespace belfry {
namespace {

OutputTypes joined_shape(const ShapeContext& c) {
  const auto& options = c.options<AttentionOptions>();
  c.require_rank(0, 3);
  const int parts = options.heads + 2 * kv_heads_of(options);
  const Shape& x = c.input(0);
  c.require(x[2] % parts == 0, parts, " heads do not divide ", x);
  return {Shape{x[0], x[1], x[2] / parts * options.heads},
          {{x[0], options.heads, x[1]}, c.dtype() == DType::kF64 ? DType::kF64 : DType::kF32}};
}

OutputTypes joined_grad_shape(const ShapeContext& c) {
  OutputTypes types{c.type(1)};
  if (c.inputs() > 4 && c.dtype(4) == c.dtype(1)) types.push_back(c.type(4));
  return types;
}

// As of the separate op: y and dy are like q.
OpWork work_of_times(const Shape& q, int products) {
  return {products * work_elements(q) * work_elements(Shape{q[1]})};
}
OpWork joined_work(const WorkContext& c) { return work_of_times(c.outputs[0].shape, 2); }
OpWork joined_grad_work(const WorkContext& c) { return work_of_times(c.inputs[0].shape, 5); }

template <class Options>
bool is_along_columns(const PlanNode& node) {
  const int axis = node.node->options<Options>().axis;
  return node.types[0].shape.rank() == 3 && (axis == 2 || axis == -1);
}

// What a split along columns cuts into q, k and v, which are input `first` and those after it.
std::optional<Value> before_split(const Surroundings& around, std::size_t first) {
  const NodeIndex split = around.maker(around.input(first), kSplit);
  if (!split) return {};
  const PlanNode& node = around.node(split);
  if (node.types.size() != 3 || !is_along_columns<SplitOptions>(node)) return {};
  for (int part = 0; part < 3; ++part)
    if (around.input(first + static_cast<std::size_t>(part)) != Value{split, part}) return {};
  return node.inputs[0];
}

// The concatenation along columns of outputs 0, 1 and 2, if nobody else reads them.
NodeIndex joining(const Surroundings& around) {
  const NodeIndex concat = around.user(around.output(0), kConcat);
  if (!concat) return {};
  const PlanNode& node = around.node(concat);
  if (node.inputs.size() != 3 || !is_along_columns<ConcatOptions>(node)) return {};
  for (int part = 0; part < 3; ++part)
    if (node.inputs[static_cast<std::size_t>(part)] != around.output(part) ||
        around.is_used_by_others(around.output(part), {&concat, 1}))
      return {};
  return concat;
}

// The inputs of the joined op: `joined` instead of the three from `first` on.
std::vector<Value> joined_inputs(const Surroundings& around, std::size_t first, Value joined) {
  std::vector<Value> inputs = around.node(around.output(0).node).inputs;
  inputs[first] = joined;
  const auto k = inputs.begin() + static_cast<std::ptrdiff_t>(first) + 1;
  inputs.erase(k, k + 2);
  return inputs;
}

}  // namespace

const Op kJoinedAttention{.name = "JoinedAttention",
                          .inputs = kVariadicInputs,
                          .shape = joined_shape,
                          .no_gradient = kMadeByPlans,
                          .heavy = true,
                          .work = joined_work,
                          .cpu = kernels::attention_on_host,
                          .reference = kernels::attention_reference,
                          .half = true};

const Op kJoinedAttentionGrad{.name = "JoinedAttentionGrad",
                              .inputs = kVariadicInputs,
                              .shape = joined_grad_shape,
                              .no_gradient = kMadeByPlans,
                              .heavy = true,
                              .work = joined_grad_work,
                              .cpu = kernels::attention_grad_on_host,
                              .reference = kernels::attention_grad_reference,
                              .half = true};

void fuse_attention(Surroundings& around) {
  if (!around.on_gpu()) return;
  if (const std::optional<Value> joined = before_split(around, 0))
    around.replace(kJoinedAttention, joined_inputs(around, 0, *joined),
                   {around.output(0), around.output(1)}, {});
}

void fuse_attention_gradient(Surroundings& around) {
  if (!around.on_gpu()) return;
  const std::optional<Value> joined = before_split(around, 1);
  if (!joined) return;
  const NodeIndex concat = joining(around);
  if (!concat) return;
  std::vector<Value> results{{concat, 0}};
  if (around.node(around.output(0).node).types.size() > 3) results.push_back(around.output(3));
  around.replace(kJoinedAttentionGrad, joined_inputs(around, 1, *joined), std::move(results),
                 {concat});
}

}  // namespace belfry
