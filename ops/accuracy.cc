#include "belfry/ops/accuracy.h"

#include <algorithm>
#include <numeric>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/kernels/labels.h"

namespace belfry {
namespace {

OutputTypes accuracy_shape(const ShapeContext& c) {
  kernels::require_labels(c);
  const int k = c.options<AccuracyOptions>().k;
  const std::int64_t classes = c.input(0)[1];
  c.require(k >= 1 && (classes == kUnknownSize || k <= std::max<std::int64_t>(classes, 1)),
            "k must be from 1 to the number of classes, not ", k, ", for logits ", c.input(0));
  return {{Shape{}, DType::kF32}};
}

// How many of x [n] rank before the class: larger ones, and equal ones with a smaller index; n if
// one is NaN.
template <class T>
BELFRY_KERNEL std::int64_t rank_of_class(const T* x, std::int64_t n, std::int64_t label) {
  const T own = x[label];
  math::BitsOf<T> larger = 0, nans = 0;  // as wide as T: counted as fast as compared
  for (std::int64_t i = 0; i < label; ++i) larger += x[i] >= own ? 1 : 0;
  for (std::int64_t i = label + 1; i < n; ++i) larger += x[i] > own ? 1 : 0;
  for (std::int64_t i = 0; i < n; ++i) nans += x[i] != x[i] ? 1 : 0;
  return nans > 0 ? n : static_cast<std::int64_t>(larger);
}

// The same, by sorting.
template <class T>
std::int64_t plain_rank_of_class(const T* x, std::int64_t n, std::int64_t label) {
  if (std::any_of(x, x + n, [](T value) { return value != value; })) return n;
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [x](std::int64_t a, std::int64_t b) { return x[a] > x[b]; });
  return std::ranges::find(order, label) - order.begin();
}

// rank(x, n, label) is the number of classes before a row's own.
template <class Rank>
KernelRun accuracy_kernel(const KernelPlan& plan, Rank rank) {
  const std::int64_t rows = plan.input(0).shape[0], n = plan.input(0).shape[1];
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) -> KernelRun {
    return [=, k = plan.options<AccuracyOptions>().k,
            all = plan.of_all(static_cast<double>(rows))](const KernelPointers& p) {
      std::int64_t correct = 0;
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto label = static_cast<std::int64_t>(p.input<Label>(1)[row]);
        if (label >= 0 && label < n) correct += rank(p.input<T>(0) + row * n, n, label) < k;
      }
      *p.output<float>() = static_cast<float>(correct) / static_cast<float>(all);
    };
  });
}

KernelRun accuracy_cpu(KernelPlan& plan) {
  return accuracy_kernel(plan, [](const auto* x, std::int64_t n, std::int64_t label) {
    return rank_of_class(x, n, label);
  });
}
KernelRun accuracy_reference(KernelPlan& plan) {
  return accuracy_kernel(plan, [](const auto* x, std::int64_t n, std::int64_t label) {
    return plain_rank_of_class(x, n, label);
  });
}

}  // namespace

const Op kAccuracy{.name = "Accuracy",
                   .inputs = 2,
                   .shape = accuracy_shape,
                   .no_gradient = "it counts, and is constant almost everywhere",
                   .shards = to_sums<3>,
                   .fuse = fuse_accuracy,
                   .cpu = accuracy_cpu,
                   .reference = accuracy_reference,
                   .autocast = Autocast::kFull};
const StoredOptions<AccuracyOptions> kStoredAccuracy(kAccuracy);

Output accuracy(Output logits, Output labels, At at) {
  return top_k_accuracy(logits, labels, 1, at);
}

Output top_k_accuracy(Output logits, Output labels, int k, At at) {
  return logits.graph()
      .add(kAccuracy, {logits, labels}, at, NodeOptions(AccuracyOptions{k}))
      .output();
}

}  // namespace belfry
