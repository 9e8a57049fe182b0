#include "belfry/ops/losses/class_weights.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/losses/loss_reduction.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/log_softmax.h"
#include "belfry/ops/reduce.h"

namespace belfry {
namespace {
namespace class_weights_cc {

OutputTypes shape_of_weights(const ShapeContext& c) {
  c.require_floating(0);
  c.require_rank(0, 1);
  c.require_rank(1, 1);
  c.require(c.dtype(1) == DType::kI32 || c.dtype(1) == DType::kI64, "labels are i32 or i64, not ",
            name_of(c.dtype(1)));
  return {c.input(1)};
}

KernelRun weights_of_labels(KernelPlan& plan) {
  const std::int64_t ignored = plan.options<ClassWeightsOptions>().ignored;
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) -> KernelRun {
    return
        [ignored, classes = plan.input(0).shape[0], &node = plan.node()](const KernelPointers& p) {
          for (std::int64_t row = p.begin(); row < p.end(); ++row) {
            const bool counts = ignored == kNoLabel || p.input<Label>(1)[row] != ignored;
            p.output<T>()[row] =
                counts ? p.input<T>(0)[kernels::checked_label<Label>(node, p, row, classes)] : T(0);
          }
        };
  });
}

}  // namespace class_weights_cc
}  // namespace

const Op kClassWeights{.name = "ClassWeights",
                       .inputs = 2,
                       .shape = class_weights_cc::shape_of_weights,
                       .no_gradient = "the weights of classes are constants",
                       .split = WorkSplit::kRows,
                       .shards = by_rows<0b10>,
                       .reference = class_weights_cc::weights_of_labels};
const StoredOptions<ClassWeightsOptions> kStoredClassWeights(kClassWeights);

Output class_weights(Output weights, Output labels, ClassWeightsOptions options, At at) {
  return weights.graph().add(kClassWeights, {weights, labels}, at, NodeOptions(options)).output();
}

Output constant_vector(Graph& graph, const std::vector<double>& values, DType dtype, At at) {
  const Tensor wide({static_cast<std::int64_t>(values.size())}, values);
  if (dtype == DType::kF64) return constant(graph, wide, at);
  const Tensor narrow(wide.shape(), std::vector<float>(values.begin(), values.end()));
  return cast(constant(graph, narrow, At(at.site)), dtype, at);
}

namespace {

Output weights_of_classes(Output logits, const WeightedCrossEntropyOptions& options) {
  const std::vector<double>& given = options.class_weights;
  const auto line = [&] { return logits.graph().scopes().site_or({}); };
  require(logits.shape().rank() == 2, "weighted_cross_entropy (built at ", line(),
          "): takes logits [n, classes], not ", logits.type());
  const std::int64_t classes = logits.shape().back();
  require(classes != kUnknownSize, "weighted_cross_entropy (built at ", line(),
          "): the number of classes of ", logits.shape(), " must be known");
  require(given.empty() || std::ssize(given) == classes, "weighted_cross_entropy (built at ",
          line(), "): class_weights has ", given.size(), " numbers for ", classes, " classes");
  for (const double weight : given)
    require(weight >= 0, "weighted_cross_entropy (built at ", line(),
            "): weights of classes must not be negative, but one is ", weight);
  return constant_vector(
      logits.graph(),
      given.empty() ? std::vector<double>(static_cast<std::size_t>(classes), 1.0) : given,
      logits.dtype());
}

}  // namespace

Output label_weights(Output logits, Output labels, const WeightedCrossEntropyOptions& options,
                     At at) {
  SiteScope site(logits.graph(), at.site);
  logits = widened(logits, at.site);
  return class_weights(weights_of_classes(logits, options), labels, {options.ignored});
}

// With smoothing, its share of the target is spread over all classes, each with its weight.
Output weighted_cross_entropy(Output logits, Output labels, WeightedCrossEntropyOptions options,
                              At at) {
  SiteScope site(logits.graph(), at.site);
  logits = widened(logits, at.site);
  const double smoothing = options.smoothing;
  if (options.class_weights.empty())
    return sparse_softmax_cross_entropy(logits, labels, {smoothing, options.ignored}, at);
  require(smoothing >= 0 && smoothing <= 1, "weighted_cross_entropy (built at ",
          logits.graph().scopes().site_or(at.site), "): smoothing must be from 0 to 1, not ",
          smoothing);
  const Output weights = label_weights(logits, labels, options, at);
  const Output of_labels =
      sparse_softmax_cross_entropy(logits, labels, {.ignored = options.ignored}) * weights;
  if (smoothing == 0) return of_labels;
  const Output counted =
      label_weights(logits, labels, {.class_weights = {}, .ignored = options.ignored}, at);
  const Output all =
      reduce_sum(log_softmax(logits) * weights_of_classes(logits, options), {-1}) * counted;
  const double share = smoothing / static_cast<double>(logits.shape().back());
  return of_labels * (1 - smoothing) - all * share;
}

}  // namespace belfry
