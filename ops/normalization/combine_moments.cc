#include "belfry/ops/normalization/combine_moments.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/spread.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

constexpr std::size_t kMomentsInputs = 3;  // mean, squares, count

OutputTypes combine_shape(const ShapeContext& c) {
  c.require(c.inputs() > 0 && c.inputs() % kMomentsInputs == 0,
            "needs as many means as sums of squares and counts");
  c.require_floating(0);
  for (std::size_t i = 0; i < c.inputs(); ++i) {
    const bool count = i % kMomentsInputs == 2;
    c.require(c.dtype(i) == c.dtype() && c.input(i).compatible(count ? Shape{} : c.input(0)),
              "moments 0 and ", i, " are ", c.type(0), " and ", c.type(i));
  }
  return {c.type(0), c.type(0), {Shape{}, c.dtype()}};
}

// One of the parts.
template <class T>
struct MomentsPart {
  const T *mean, *squares;
  T count;
};

// Combines element i of parts [first, first + number); part(k) is part k.
template <class T, class F>
kernels::Spread<T> combine(const F& part, std::size_t first, std::size_t number, std::int64_t i) {
  if (number == 1) {
    const MomentsPart<T> one = part(first);
    if (one.count == 0) return {0, 0, 0};
    return {one.count, one.mean[i], one.squares[i]};
  }
  const std::size_t half = (number + 1) / 2;
  return kernels::combined(combine<T>(part, first, half, i),
                           combine<T>(part, first + half, number - half, i));
}

// The count of the combined parts, also if they have no elements. Sums may be inexact, so it adds
// in the same order.
template <class T, class F>
T count_of(const F& part, std::size_t first, std::size_t number) {
  if (number == 1) return part(first).count;
  const std::size_t half = (number + 1) / 2;
  return count_of<T>(part, first, half) + count_of<T>(part, first + half, number - half);
}

template <class T, class F>
void combine_all(const F& part, std::size_t parts, const KernelPointers& p) {
  const T total = count_of<T>(part, 0, parts);
  if (p.begin() == 0) p.output<T>(2)[0] = total;
  for (std::int64_t i = p.begin(); i < p.end(); ++i) {
    const kernels::Spread<T> all = combine<T>(part, 0, parts, i);
    p.output<T>(0)[i] = all.mean;
    p.output<T>(1)[i] = total == 0 ? T(0) : all.squares / total;
  }
}

KernelRun combine_reference(KernelPlan& plan) {
  return typed_kernel(plan, []<class T>(T, const KernelPointers& p) {
    const auto part = [&](std::size_t k) {
      return MomentsPart<T>{p.input<T>(kMomentsInputs * k), p.input<T>(kMomentsInputs * k + 1),
                            p.input<T>(kMomentsInputs * k + 2)[0]};
    };
    combine_all<T>(part, p.inputs() / kMomentsInputs, p);
  });
}

OutputTypes rows_shape(const ShapeContext& c) {
  c.require_rank(0, 2);
  c.require_floating(0);
  const Shape channels{(c.input(0)[1] - 1) / 2};
  return {channels, channels, Shape{}};
}

// Row k of the input.
template <class T>
MomentsPart<T> part_in_rows(const KernelPointers& p, std::int64_t channels, std::size_t k) {
  const T* const row = p.input<T>(0) + static_cast<std::int64_t>(k) * (2 * channels + 1);
  return {row, row + channels, row[2 * channels]};
}

KernelRun rows_reference(KernelPlan& plan) {
  const auto parts = static_cast<std::size_t>(plan.input(0).shape[0]);
  const std::int64_t channels = plan.output(0).shape[0];
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    combine_all<T>([&](std::size_t k) { return part_in_rows<T>(p, channels, k); }, parts, p);
  });
}

OutputTypes merge_shape(const ShapeContext& c) {
  c.require_rank(0, 2);
  c.require_floating(0);
  return {Shape{1, c.input(0)[1]}};
}

KernelRun merge_reference(KernelPlan& plan) {
  const auto parts = static_cast<std::size_t>(plan.input(0).shape[0]);
  const std::int64_t channels = (plan.input(0).shape[1] - 1) / 2;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const auto part = [&](std::size_t k) { return part_in_rows<T>(p, channels, k); };
    T *const mean = p.output<T>(0), *const squares = mean + channels;
    mean[2 * channels] = count_of<T>(part, 0, parts);
    for (std::int64_t i = 0; i < channels; ++i) {
      const kernels::Spread<T> all = combine<T>(part, 0, parts, i);
      mean[i] = all.mean;
      squares[i] = all.squares;
    }
  });
}

}  // namespace

const Op kMergeMoments{.name = "MergeMoments",
                       .inputs = 1,
                       .shape = merge_shape,
                       .no_gradient = "it belongs to nodes that have one",
                       .reference = merge_reference,
                       .cpu_only = "its input comes from other processes"};

const Op kCombineMoments{.name = "CombineMoments",
                         .inputs = kVariadicInputs,
                         .shape = combine_shape,
                         .no_gradient = "it belongs to nodes that have one",
                         .split = WorkSplit::kElements,
                         .reference = combine_reference};

const Op kCombineGathered{.name = "CombineGathered",
                          .inputs = 1,
                          .shape = rows_shape,
                          .no_gradient = "it belongs to nodes that have one",
                          .split = WorkSplit::kElements,
                          .reference = rows_reference,
                          .cpu_only = "its input comes from other processes"};

Moments combine_moments(std::span<const Output> means, std::span<const Output> variances,
                        std::span<const Output> counts, At at) {
  require(!means.empty() && means.size() == variances.size() &&
              (counts.empty() || counts.size() == means.size()),
          at.site.str(), ": combine_moments needs as many means as variances, not ", means.size(),
          " and ", variances.size(), ", and counts for all or none, not ", counts.size());
  Graph& graph = means[0].graph();
  const Output one = counts.empty() ? constant(graph, 1.0, means[0].dtype(), at.site) : Output();
  std::vector<Output> inputs;
  for (std::size_t k = 0; k < means.size(); ++k) {
    const Output squares = counts.empty() ? variances[k] : variances[k] * counts[k];
    inputs.insert(inputs.end(), {means[k], squares, counts.empty() ? one : counts[k]});
  }
  Node& node = graph.add(kCombineMoments, inputs, at);
  return {node.output(0), node.output(1)};
}

}  // namespace belfry
