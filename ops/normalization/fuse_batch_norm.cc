// Finds the nodes around a batch norm that go into one launch with it.
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/plan/surroundings.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/fusing.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/fused_batch_norm.h"
#include "belfry/ops/relu.h"

namespace belfry {
// Fuses Cast, BatchNormTrain or BatchNormInference, Cast, Add, Relu: all but the second may be
// missing.
void fuse_batch_norm(Surroundings& around) {
  if (is_half(around.type(around.input(1)).dtype)) return;  // gamma
  const bool trained = around.op() == &kBatchNormTrain;
  std::vector<Value> inputs;
  for (std::size_t i = 0; i < (trained ? 3 : 5); ++i) inputs.push_back(around.input(i));
  std::vector<NodeIndex> members;
  Value y = around.output(0);
  const auto take = [&](NodeIndex n) {
    members.push_back(n);
    y = {n, 0};
  };
  const Value narrow = before_cast(around, inputs[0]);
  if (narrow != inputs[0]) {
    if (const NodeIndex cast = cast_to(around, y, around.type(narrow).dtype)) {
      inputs[0] = narrow;
      take(cast);
    }
  }
  if (const SumOfTwo sum = sum_of_two(around, around.only_user(y, kAdd)); sum.node) {
    inputs.push_back(sum.left == y ? sum.right : sum.left);
    take(sum.node);
  }
  const NodeIndex relu = around.only_user(y, kRelu);
  if (relu) take(relu);
  if (members.empty()) return;
  if (trained)
    around.replace(relu ? kFusedBatchNormTrainRelu : kFusedBatchNormTrain, std::move(inputs),
                   {y, around.output(1), around.output(2)}, std::move(members));
  else
    around.replace(relu ? kFusedBatchNormInferenceRelu : kFusedBatchNormInference,
                   std::move(inputs), {y}, std::move(members));
}

namespace {

// beta, if y is ReLU of the batch norm whose gradient this is, perhaps after a cast.
std::optional<Value> beta_of(const Surroundings& around, Value y) {
  const auto input = [&](Value value, std::size_t i) { return around.node(value.node).inputs[i]; };
  const auto made_by = [&](Value value, const Op& op) {
    return around.node(value.node).op == &op && value.index == 0 && value.shard == Value::kOwn;
  };
  if (!made_by(y, kRelu)) return {};
  Value normal = input(y, 0);
  if (made_by(normal, kCast)) normal = input(normal, 0);
  const bool trained = around.op() == &kBatchNormTrainGrad;
  if (!made_by(normal, trained ? kBatchNormTrain : kBatchNormInference)) return {};
  const auto moment = [&](int i) {
    return trained ? Value{normal.node, 1 + i} : input(normal, 3 + static_cast<std::size_t>(i));
  };
  const auto epsilon = [&](NodeIndex n) {
    return around.node(n).node->options<BatchNormOptions>().epsilon;
  };
  const bool same = epsilon(normal.node) == epsilon(around.output(0).node) &&
                    input(normal, 0) == around.input(1) && input(normal, 1) == around.input(2) &&
                    moment(0) == around.input(3) && moment(1) == around.input(4);
  return same ? std::optional(input(normal, 2)) : std::nullopt;
}

}  // namespace

// Fuses AddN, ReluGrad, Cast, BatchNormTrainGrad or BatchNormInferenceGrad, Cast: all but the
// fourth may be missing. AddN is fused with ReluGrad, on GPUs alone.
void fuse_batch_norm_gradient(Surroundings& around) {
  if (is_half(around.type(around.input(2)).dtype)) return;  // gamma
  const bool trained = around.op() == &kBatchNormTrainGrad;
  std::vector<Value> inputs, results;
  for (std::size_t i = 0; i < 5; ++i) inputs.push_back(around.input(i));
  for (int i = 0; i < (trained ? 3 : 5); ++i) results.push_back(around.output(i));
  std::vector<NodeIndex> members, casts;
  const Value dy = before_cast(around, inputs[0]), x = before_cast(around, inputs[1]);
  const DType narrow = around.type(dy).dtype;
  if (dy != inputs[0] && narrow == around.type(x).dtype) {
    if (const NodeIndex cast = cast_to(around, results[0], narrow)) {
      casts.push_back(inputs[0].node);
      members.push_back(cast);
      results[0] = {cast, 0};
      inputs[0] = dy;
      inputs[1] = x;
    }
  }
  if (const NodeIndex relu = around.maker(inputs[0], kReluGrad)) {
    const Value g = inputs[0];
    inputs[0] = around.node(relu).inputs[0];
    inputs.push_back(around.node(relu).inputs[1]);
    members.push_back(relu);
    std::vector<NodeIndex> readers = members;
    readers.push_back(around.output(0).node);
    // If others use the cast, it stays, and reads g.
    if (!casts.empty() && !around.is_used_by_others({casts[0], 0}, readers))
      readers.push_back(casts[0]);
    if (around.is_used_by_others(g, readers)) results.push_back(g);
    if (around.on_gpu()) {
      const bool others_read = around.is_used_by_others(inputs[0], {&relu, 1});
      const SumOfTwo sum =
          sum_of_two(around, others_read ? NodeIndex() : around.maker(inputs[0], kAddN));
      if (sum.node) {
        inputs[0] = sum.left;
        inputs.push_back(sum.right);
        members.push_back(sum.node);
      }
      if (const std::optional<Value> beta = beta_of(around, inputs[5])) inputs.push_back(*beta);
    }
  }
  if (members.empty()) return;
  around.replace(trained ? kFusedBatchNormTrainGrad : kFusedBatchNormInferenceGrad,
                 std::move(inputs), std::move(results), std::move(members));
}

// Fuses ReluGrad, BatchNormSums.
void fuse_batch_norm_sums(Surroundings& around) {
  const Value g = around.input(0);
  const NodeIndex relu = around.maker(g, kReluGrad);
  if (!relu || is_half(around.type(around.input(2)).dtype)) return;  // the mean
  around.replace(kReluBatchNormSums,
                 {around.node(relu).inputs[0], around.input(1), around.input(2), around.input(3),
                  around.node(relu).inputs[1]},
                 {g, around.output(0), around.output(1)}, {relu});
}

void rematerialise_batch_norm(Surroundings& around) {
  const bool trained = around.op() == &kFusedBatchNormTrainRelu;
  std::vector<Value> inputs = around.node(around.output(0).node).inputs;
  if (trained) inputs.insert(inputs.begin() + 3, {around.output(1), around.output(2)});
  around.replace(kFusedBatchNormInferenceRelu, std::move(inputs), {around.output(0)}, {});
}

}  // namespace belfry
