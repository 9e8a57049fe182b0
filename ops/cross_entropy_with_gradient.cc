#include "belfry/ops/cross_entropy_with_gradient.h"

#include <algorithm>
#include <optional>

#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/framework/graph/node.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/fusing.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"

namespace belfry {
namespace {

OutputTypes with_gradient_shape(const ShapeContext& c) {
  kernels::require_labels(c);
  OutputTypes types{c.type(0)};
  types.emplace_back(Shape{c.input(0)[0]}, c.dtype(2));
  types.emplace_back(Shape{}, DType::kF32);
  return types;
}

// Whether no logit comes before that of the label, and all are numbers.
template <class T>
bool label_comes_first(const T* x, std::int64_t n, std::int64_t label) {
  if (label < 0 || label >= n) return false;
  for (std::int64_t i = 0; i < n; ++i)
    if (i < label ? !(x[i] < x[label]) : !(x[i] <= x[label])) return false;
  return true;
}

KernelRun top_1_accuracy(const KernelPlan& plan) {
  const std::int64_t rows = plan.input(0).shape[0], n = plan.input(0).shape[1];
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) -> KernelRun {
    return [rows, n, all = plan.of_all(static_cast<double>(rows))](const KernelPointers& p) {
      std::int64_t correct = 0;
      for (std::int64_t row = 0; row < rows; ++row)
        correct += label_comes_first(p.input<T>(0) + row * n, n, p.input<Label>(1)[row]) ? 1 : 0;
      *p.output<float>(2) = static_cast<float>(correct) / static_cast<float>(all);
    };
  });
}

// By kernels of the separate ops. The gradient of the logits may overwrite them, so it comes last.
KernelRun one_by_one(KernelPlan& plan, CpuKernel Op::*kernel) {
  const TensorType logits = plan.input(0), labels = plan.input(1), loss = plan.output(1);
  plan.workspace(loss.bytes());
  const auto part = [&](const Op& op, const std::vector<TensorType>& inputs,
                        const std::vector<TensorType>& outputs) {
    KernelPlan of_part(plan.node(), inputs, outputs, whole_range(op, 0, inputs, outputs));
    of_part.set_op(op);
    of_part.set_batch(plan.batch());
    return (op.*kernel)(of_part);
  };
  KernelRun accuracy;
  if (plan.outputs() > 2) accuracy = top_1_accuracy(plan);
  const std::int64_t rows = loss.shape[0];
  return visit_floating(loss.dtype, [&]<class T>(T) -> KernelRun {
    return [rows, accuracy, all = static_cast<T>(plan.of_all(static_cast<double>(rows))),
            loss_of = part(kSparseSoftmaxCrossEntropy, {logits, labels}, {loss}),
            gradient = part(kSparseSoftmaxCrossEntropyGrad, {logits, labels, loss}, {logits})](
               const KernelPointers& p) {
      const auto in = p.mutable_inputs(), out = p.all_outputs();
      const auto run = [&](const KernelRun& of, std::span<void* const> inputs, void* output) {
        of(KernelPointers(inputs, {&output, 1}, nullptr, {0, rows}, p.step(), p.first_row()));
      };
      run(loss_of, in.first(2), out[1]);
      if (accuracy) accuracy(p);
      std::fill_n(reinterpret_cast<T*>(p.workspace()), rows, *p.input<T>(2) / all);
      void* const of_gradient[] = {in[0], in[1], p.workspace()};
      run(gradient, of_gradient, out[0]);
    };
  });
}

KernelRun with_gradient_cpu(KernelPlan& plan) { return one_by_one(plan, &Op::cpu); }
KernelRun with_gradient_reference(KernelPlan& plan) { return one_by_one(plan, &Op::reference); }

// What one launch replaces.
struct LossNodes {
  NodeIndex loss, gradient, cast, accuracy;  // the last two may be missing
  Value logits, labels, mean_gradient;
};

// The nodes to replace around the loss of `logits`, if its mean is trained. The gradient of that
// mean must not depend on any loss or accuracy: these may be fused, too, and then two nodes would
// wait for each other.
std::optional<LossNodes> loss_nodes(const Surroundings& around, Value logits, Value labels) {
  if (!around.on_gpu()) return {};
  LossNodes found{.loss = around.user(logits, kSparseSoftmaxCrossEntropy),
                  .gradient = around.user(logits, kSparseSoftmaxCrossEntropyGrad),
                  .logits = before_cast(around, logits),
                  .labels = labels};
  if (!found.loss || !found.gradient) return {};
  // In 16 bits the gradient of each loss would be rounded.
  if (is_half(around.type({found.loss, 0}).dtype)) return {};
  const PlanNode &loss = around.node(found.loss), &gradient = around.node(found.gradient);
  const auto& options = loss.node->options<CrossEntropyOptions>();
  const auto& of_gradient = gradient.node->options<CrossEntropyOptions>();
  const NodeIndex share = around.maker(gradient.inputs[2], kBroadcastAlong);
  if (!share || loss.inputs[1] != labels || gradient.inputs[1] != labels ||
      options.smoothing != of_gradient.smoothing || options.ignored != of_gradient.ignored)
    return {};
  const auto& along = around.node(share).node->options<BroadcastAlongOptions>();
  const std::span<const Value> terms = around.node(share).inputs;
  found.mean_gradient = terms[0];
  if (along.values != BroadcastValues::kShare || along.axes != std::vector{0} ||
      terms[1] != Value{found.loss, 0} || around.depends_on(terms[0], kSparseSoftmaxCrossEntropy) ||
      around.depends_on(terms[0], kAccuracy))
    return {};
  if (found.logits != logits) {
    found.cast = cast_to(around, {found.gradient, 0}, around.type(found.logits).dtype);
    if (!found.cast) return {};
  }
  const NodeIndex accuracy = around.user(logits, kAccuracy);
  if (accuracy && around.node(accuracy).inputs[1] == labels &&
      around.node(accuracy).node->options<AccuracyOptions>().k == 1)
    found.accuracy = accuracy;
  return found;
}

// Where nothing else is fused: on GPUs the op reads logits of 16 bits without their cast to f32.
void fuse_cast(Surroundings& around) {
  const Value logits = before_cast(around, around.input(0));
  if (logits != around.input(0))
    around.replace(*around.op(), {logits, around.input(1)}, {around.output(0)}, {});
}

}  // namespace

const Op kCrossEntropyWithGradient{.name = "CrossEntropyWithGradient",
                                   .inputs = 3,
                                   .shape = with_gradient_shape,
                                   .no_gradient = kMadeByPlans,
                                   .in_place = InPlace::kFirst,
                                   .cpu = with_gradient_cpu,
                                   .reference = with_gradient_reference};

void fuse_loss(Surroundings& around) {
  const std::optional<LossNodes> found = loss_nodes(around, around.input(0), around.input(1));
  if (!found || found->loss != around.output(0).node) return fuse_cast(around);
  std::vector<NodeIndex> others{found->gradient};
  std::vector<Value> results{{found->cast ? found->cast : found->gradient, 0}, around.output(0)};
  if (found->cast) others.push_back(found->cast);
  if (found->accuracy) {
    others.push_back(found->accuracy);
    results.push_back({found->accuracy, 0});
  }
  around.replace(kCrossEntropyWithGradient, {found->logits, found->labels, found->mean_gradient},
                 std::move(results), std::move(others));
}

// Reads 16-bit logits without their cast, and writes a 16-bit gradient. All else stays f32.
void fuse_loss_gradient(Surroundings& around) {
  const Value logits = before_cast(around, around.input(0));
  if (logits == around.input(0)) return;
  if (const NodeIndex cast = cast_to(around, around.output(0), around.type(logits).dtype))
    around.replace(*around.op(), {logits, around.input(1), around.input(2)}, {{cast, 0}}, {cast});
}

// A loss takes accuracy along.
void fuse_accuracy(Surroundings& around) {
  const std::optional<LossNodes> found = loss_nodes(around, around.input(0), around.input(1));
  if (!found || found->accuracy != around.output(0).node) fuse_cast(around);
}

}  // namespace belfry
