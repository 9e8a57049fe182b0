#include "belfry/ops/combine_moments.h"

namespace belfry {
namespace {

OutputTypes combine_shape(const ShapeContext& c) {
  c.require(c.inputs() >= 2 && c.inputs() % 2 == 0, "needs as many means as variances");
  c.require_floating(0);
  for (std::size_t i = 1; i < c.inputs(); ++i)
    c.require(c.dtype(i) == c.dtype() && c.input(i).compatible(c.input(0)), "moments 0 and ", i,
              " are ", c.type(0), " and ", c.type(i));
  return {c.type(0), c.type(0)};
}

// The mean of a number of parts, and its variance times that number.
template <class T>
struct Sum {
  T mean, variance;
};

template <class T>
Sum<T> combine(const Pointers& p, std::size_t first, std::size_t count, std::int64_t i) {
  const std::size_t parts = p.inputs() / 2;
  if (count == 1) return {p.input<T>(first)[i], p.input<T>(parts + first)[i]};
  const std::size_t n = (count + 1) / 2, m = count - n;
  const Sum<T> left = combine<T>(p, first, n, i), right = combine<T>(p, first + n, m, i);
  const T distance = right.mean - left.mean;
  const T share = static_cast<T>(m) / static_cast<T>(count);
  return {left.mean + distance * share,
          left.variance + right.variance + distance * distance * (static_cast<T>(n) * share)};
}

KernelRun combine_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const Pointers& p) {
      const std::size_t parts = p.inputs() / 2;
      for (std::int64_t i = p.begin(); i < p.end(); ++i) {
        const Sum<T> all = combine<T>(p, 0, parts, i);
        p.output<T>(0)[i] = all.mean;
        p.output<T>(1)[i] = all.variance / static_cast<T>(parts);
      }
    };
  });
}

}  // namespace

const Op kCombineMoments{.name = "CombineMoments",
                         .inputs = kVariadic,
                         .shape = combine_shape,
                         .no_gradient = "it serves moving averages, which are not differentiated",
                         .split = Split::kElements,
                         .reference = combine_reference};

Moments combine_moments(std::span<const Output> means, std::span<const Output> variances, At at) {
  require(!means.empty() && means.size() == variances.size(), at.site.str(),
          ": combine_moments needs as many means as variances, not ", means.size(), " and ",
          variances.size());
  std::vector<Output> inputs(means.begin(), means.end());
  inputs.insert(inputs.end(), variances.begin(), variances.end());
  Node& node = means[0].graph().add(kCombineMoments, inputs, at);
  return {node.output(0), node.output(1)};
}

}  // namespace belfry
