#include "belfry/ops/accuracy.h"

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/labels.h"

namespace belfry {
namespace {

OutputTypes accuracy_shape(const ShapeContext& c) {
  kernels::require_labels(c);
  return {{Shape{}, DType::kF32}};
}

// -1 if there is a NaN.
template <class T>
std::int64_t argmax(const T* x, std::int64_t n) {
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return -1;
    if (x[i] > x[best]) best = i;
  }
  return best;
}

KernelRun accuracy_reference(KernelPlan& plan) {
  const std::int64_t rows = plan.input(0).shape[0], classes = plan.input(0).shape[1];
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) -> KernelRun {
    return [rows, classes, all = plan.of_all(static_cast<double>(rows))](const Pointers& p) {
      std::int64_t correct = 0;
      for (std::int64_t row = 0; row < rows; ++row)
        correct += argmax(p.input<T>(0) + row * classes, classes) == p.input<Label>(1)[row];
      *p.output<float>() = static_cast<float>(correct) / static_cast<float>(all);
    };
  });
}

}  // namespace

const Op kAccuracy{.name = "Accuracy",
                   .inputs = 2,
                   .shape = accuracy_shape,
                   .no_gradient = "it counts, and is constant almost everywhere",
                   .shards = to_sums<3>,
                   .reference = accuracy_reference,
                   .autocast = Autocast::kFull};

Output accuracy(Output logits, Output labels, At at) {
  return logits.graph().add(kAccuracy, {logits, labels}, at).output();
}

}  // namespace belfry
