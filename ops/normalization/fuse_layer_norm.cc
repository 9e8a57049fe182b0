// Finds the nodes around a layer norm or RMS norm that go into one launch with it.
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/fusing.h"
#include "belfry/ops/normalization/fused_layer_norm.h"
#include "belfry/ops/normalization/layer_norm.h"

namespace belfry {
namespace {

// The terms of a sum: x, shortcut, and perhaps bias. No inputs: it is not such a sum.
struct ResidualSum {
  std::vector<Value> inputs;
  std::vector<NodeIndex> members;
};

// Finds [Add], [Cast], Add in a row: a branch of type `narrow`, perhaps with its bias, and the
// shortcut.
ResidualSum residual_sum(const Surroundings& around, Value total, DType narrow) {
  SumOfTwo sum = sum_of_two(around, around.maker(total, kAdd));
  if (!sum.node) return {};
  if (around.is_used_by_others(sum.left, {&sum.node, 1})) std::swap(sum.left, sum.right);
  ResidualSum found{{sum.left, sum.right}, {sum.node}};
  Value& x = found.inputs[0];
  if (around.type(x).dtype != narrow) {
    const NodeIndex cast = around.maker_for(sum.node, x, kCast);
    if (!cast || around.type(around.node(cast).inputs[0]).dtype != narrow) return {};
    found.members.push_back(cast);
    x = around.node(cast).inputs[0];
  }
  const NodeIndex user = found.members.back();
  if (const BiasSum biased = bias_sum(around, around.maker_for(user, x, kAdd)); biased.node) {
    found.members.push_back(biased.node);
    x = biased.x;
    found.inputs.push_back(biased.bias);
  }
  return found;
}

// The only user of a value, perhaps after reshapes, if it is a cast from f32 to 16 bits.
NodeIndex cast_to_half(const Surroundings& around, Value value) {
  if (around.type(value).dtype != DType::kF32) return {};
  const NodeIndex cast = around.only_user(around.behind_aliases(value), kCast);
  return cast && is_half(around.type({cast, 0}).dtype) ? cast : NodeIndex();
}

}  // namespace

// Fuses the nodes of residual_sum(), Cast, LayerNorm or RmsNorm, Cast: all but the third may be
// missing.
void fuse_row_norm(Surroundings& around) {
  Value rows = around.input(0), y = around.output(0);
  DType narrow = around.type(y).dtype;
  if (is_half(narrow)) return;             // and so are its factors
  std::vector<NodeIndex> readers{y.node};  // readers of rows in the fusion
  std::vector<NodeIndex> members;
  if (const NodeIndex cast = around.on_gpu() ? cast_to_half(around, y) : NodeIndex()) {
    members.push_back(cast);
    y = {cast, 0};
    narrow = around.type(y).dtype;
    const Value from = before_cast(around, rows);
    if (around.type(from).dtype == narrow) {
      // If others use the cast, it stays, and reads the rows.
      if (!around.is_used_by_others(rows, readers)) readers.push_back(rows.node);
      rows = from;
    }
  }
  ResidualSum sum = residual_sum(around, rows, narrow);
  if (members.empty() && sum.members.empty()) return;
  std::vector<Value> inputs{rows}, results{y};
  if (!sum.members.empty()) {
    inputs = std::move(sum.inputs);
    // A sum of another type does not fit into y's memory.
    if (around.is_used_by_others(rows, readers) || around.type(rows).dtype != narrow)
      results.push_back(rows);
    members.insert(members.end(), sum.members.begin(), sum.members.end());
  }
  const bool centred = around.op() == &kLayerNorm;
  for (std::size_t i = 1; i <= (centred ? 2 : 1); ++i) inputs.push_back(around.input(i));
  around.replace(centred ? kFusedLayerNorm : kFusedRmsNorm, std::move(inputs), std::move(results),
                 std::move(members));
}

// Fuses Cast, LayerNormGrad or RmsNormGrad, Cast, AddN, and on GPUs a cast of the sum to the type
// of dy: all but the second may be missing.
void fuse_row_norm_gradient(Surroundings& around) {
  if (is_half(around.type(around.input(2)).dtype)) return;  // gamma
  const bool centred = around.op() == &kLayerNormGrad;
  std::vector<Value> inputs{around.input(0), around.input(1), around.input(2)}, results;
  for (int i = 0; i < (centred ? 3 : 2); ++i) results.push_back(around.output(i));
  std::vector<NodeIndex> members;
  const Value dy = before_cast(around, around.before_aliases(inputs[0]));
  const DType narrow = around.type(dy).dtype;
  if (is_half(narrow)) {
    inputs[0] = dy;
    const Value x = before_cast(around, inputs[1]);
    const NodeIndex cast = cast_to(around, results[0], narrow);
    if (cast && around.type(x).dtype == narrow) {
      inputs[1] = x;
      results[0] = {cast, 0};
      members.push_back(cast);
    }
  }
  const SumOfTwo sum = sum_of_two(around, around.only_user(results[0], kAddN));
  if (sum.node) {
    inputs.push_back(sum.left == results[0] ? sum.right : sum.left);
    results[0] = {sum.node, 0};
    members.push_back(sum.node);
  }
  if (!sum.node && !is_half(narrow)) return;
  const NodeIndex cast = around.user(results[0], kCast);
  if (cast && is_half(narrow) && around.type(results[0]).dtype == DType::kF32 &&
      around.type({cast, 0}).dtype == narrow) {
    results.push_back({cast, 0});
    members.push_back(cast);
  }
  around.replace(centred ? kFusedLayerNormGrad : kFusedRmsNormGrad, std::move(inputs),
                 std::move(results), std::move(members));
}

}  // namespace belfry
