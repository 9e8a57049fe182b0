// Finds the nodes around an activation that go into one launch with it.
#include "belfry/framework/graph/node.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/fusing.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/silu.h"

namespace belfry {
namespace {

// Whether `sum` keeps only the last dimension, of several columns.
bool sums_rows(const PlanNode& sum, const Shape& x) {
  std::vector<bool> all_but_last(x.rank(), true);
  all_but_last.back() = false;
  const auto& axes = sum.node->options<ReductionOptions>().axes;
  return x.back() > 1 && axis_mask(axes, x.rank()) == all_but_last;
}

}  // namespace

// Fuses Add and the activation.
void fuse_bias(Surroundings& around) {
  const Value total = around.input(0), y = around.output(0);
  const BiasSum sum = bias_sum(around, around.maker(total, kAdd));
  if (!sum.node) return;
  std::vector<Value> results{y};
  if (around.is_used_by_others(total, {&y.node, 1})) results.push_back(total);
  const Op& op = around.op() == &kRelu ? kBiasRelu : around.op() == &kGelu ? kBiasGelu : kBiasSilu;
  around.replace(op, {sum.x, sum.bias}, std::move(results), {sum.node});
}

// Fuses the gradient of an activation and ReduceSum.
void fuse_bias_gradient(Surroundings& around) {
  const Value g = around.output(0);
  const NodeIndex sum = around.user(g, kReduceSum);
  if (!sum || !sums_rows(around.node(sum), around.type(g).shape)) return;
  const Op& op = around.op() == &kReluGrad   ? kBiasReluGrad
                 : around.op() == &kGeluGrad ? kBiasGeluGrad
                                             : kBiasSiluGrad;
  around.replace(op, {around.input(0), around.input(1)}, {g, {sum, 0}}, {sum});
}

}  // namespace belfry
