#include "belfry/ops/normalization/combine_moments.h"

namespace belfry {
namespace {

// Inputs [first, ..) are parts.
void require_parts(const ShapeContext& c, std::size_t first) {
  const bool counted = c.options<CombineMomentsOptions>().counted;
  const std::size_t stride = counted ? 3 : 2;
  c.require(c.inputs() > first && (c.inputs() - first) % stride == 0,
            "needs as many means as variances", counted ? " and counts" : "");
  c.require_floating(0);
  for (std::size_t i = 0; i < c.inputs(); ++i) {
    const bool count = i >= first && (i - first) % stride == 2;
    c.require(c.dtype(i) == c.dtype() && c.input(i).compatible(count ? Shape{} : c.input(0)),
              "moments 0 and ", i, " are ", c.type(0), " and ", c.type(i));
  }
}

OutputTypes combine_shape(const ShapeContext& c) {
  require_parts(c, 0);
  return {c.type(0), c.type(0)};
}

constexpr std::size_t kBeforeParts = 3;  // dmean, dvariance, mean

OutputTypes combine_grad_shape(const ShapeContext& c) {
  require_parts(c, kBeforeParts);
  const std::size_t stride = c.options<CombineMomentsOptions>().counted ? 3 : 2;
  return OutputTypes(2 * (c.inputs() - kBeforeParts) / stride, OutputType(c.type(0)));
}

std::vector<Output> combine_gradient(const Node& node, std::span<const Output> grads) {
  std::vector<Output> inputs{grads[0], grads[1], node.output(0)};
  inputs.insert(inputs.end(), node.inputs().begin(), node.inputs().end());
  const Node& grad = node.graph().add(kCombineMomentsGrad, inputs, {}, node.raw_options());
  const bool counted = node.options<CombineMomentsOptions>().counted;
  std::vector<Output> result;
  for (std::size_t i = 0; i < grad.outputs(); i += 2) {
    result.insert(result.end(), {grad.output(i), grad.output(i + 1)});
    if (counted) result.emplace_back();
  }
  return result;
}

// Parts as inputs [first, ..) of a launch.
template <class T>
struct Parts {
  Parts(const Pointers& pointers, std::size_t first_input, bool with_counts)
      : p(pointers), first(first_input), stride(with_counts ? 3 : 2), counted(with_counts) {}

  std::size_t size() const { return (p.inputs() - first) / stride; }
  T mean(std::size_t k, std::int64_t i) const { return p.input<T>(first + stride * k)[i]; }
  T variance(std::size_t k, std::int64_t i) const { return p.input<T>(first + stride * k + 1)[i]; }
  T count(std::size_t k) const { return counted ? p.input<T>(first + stride * k + 2)[0] : T(1); }

  const Pointers& p;
  std::size_t first, stride;
  bool counted;
};

// The mean of so many, and their squared distances from it.
template <class T>
struct Sum {
  T mean, squares, count;
};

template <class T>
Sum<T> combine(const Parts<T>& parts, std::size_t first, std::size_t number, std::int64_t i) {
  if (number == 1) {
    const T count = parts.count(first);
    if (count == 0) return {0, 0, 0};
    return {parts.mean(first, i), parts.variance(first, i) * count, count};
  }
  const std::size_t half = (number + 1) / 2;
  const Sum<T> left = combine(parts, first, half, i);
  const Sum<T> right = combine(parts, first + half, number - half, i);
  if (left.count == 0) return right;
  if (right.count == 0) return left;
  const T distance = right.mean - left.mean, count = left.count + right.count;
  const T share = right.count / count;
  return {left.mean + distance * share,
          left.squares + right.squares + distance * distance * (left.count * share), count};
}

KernelRun combine_kernel(const KernelPlan& plan, bool counted) {
  return visit_floating(plan.dtype(), [counted]<class T>(T) -> KernelRun {
    return [counted](const Pointers& p) {
      const Parts<T> parts(p, 0, counted);
      for (std::int64_t i = p.begin(); i < p.end(); ++i) {
        const Sum<T> all = combine(parts, 0, parts.size(), i);
        p.output<T>(0)[i] = all.mean;
        p.output<T>(1)[i] = all.count == 0 ? T(0) : all.squares / all.count;
      }
    };
  });
}

KernelRun combine_reference(KernelPlan& plan) {
  return combine_kernel(plan, plan.options<CombineMomentsOptions>().counted);
}
KernelRun shards_reference(KernelPlan& plan) { return combine_kernel(plan, true); }

OutputTypes shards_shape(const ShapeContext& c) { return {c.type(0), c.type(0)}; }

// Of M = sum n_k m_k / N and V = sum n_k (v_k + (m_k - M)^2) / N, where M's own share in V cancels.
KernelRun combine_grad_reference(KernelPlan& plan) {
  const bool counted = plan.options<CombineMomentsOptions>().counted;
  return visit_floating(plan.dtype(), [counted]<class T>(T) -> KernelRun {
    return [counted](const Pointers& p) {
      const Parts<T> parts(p, kBeforeParts, counted);
      T total = 0;
      for (std::size_t k = 0; k < parts.size(); ++k) total += parts.count(k);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        const T count = parts.count(k), share = count / total;
        for (std::int64_t i = p.begin(); i < p.end(); ++i) {
          const T dmean = p.input<T>(0)[i], dvariance = p.input<T>(1)[i];
          const T distance = count == 0 ? T(0) : parts.mean(k, i) - p.input<T>(2)[i];
          p.output<T>(2 * k)[i] = count == 0 ? T(0) : share * (dmean + 2 * distance * dvariance);
          p.output<T>(2 * k + 1)[i] = count == 0 ? T(0) : share * dvariance;
        }
      }
    };
  });
}

}  // namespace

const Op kCombineMoments{.name = "CombineMoments",
                         .inputs = kVariadic,
                         .shape = combine_shape,
                         .gradient = combine_gradient,
                         .split = Split::kElements,
                         .reference = combine_reference};

const Op kCombineMomentsGrad{.name = "CombineMomentsGrad",
                             .inputs = kVariadic,
                             .shape = combine_grad_shape,
                             .no_gradient = "second derivatives of batch norm are not supported",
                             .split = Split::kElements,
                             .reference = combine_grad_reference};

const Op kCombineShards{.name = "CombineShards",
                        .inputs = kVariadic,
                        .shape = shards_shape,
                        .no_gradient = "plans make it after gradients are built",
                        .split = Split::kElements,
                        .reference = shards_reference,
                        .cpu_only = "devices on GPUs have one shard"};

Moments combine_moments(std::span<const Output> means, std::span<const Output> variances,
                        std::span<const Output> counts, At at) {
  require(!means.empty() && means.size() == variances.size() &&
              (counts.empty() || counts.size() == means.size()),
          at.site.str(), ": combine_moments needs as many means as variances, not ", means.size(),
          " and ", variances.size(), ", and counts for all or none, not ", counts.size());
  std::vector<Output> inputs;
  for (std::size_t k = 0; k < means.size(); ++k) {
    inputs.insert(inputs.end(), {means[k], variances[k]});
    if (!counts.empty()) inputs.push_back(counts[k]);
  }
  Node& node = means[0].graph().add(kCombineMoments, inputs, at,
                                    Options(CombineMomentsOptions{!counts.empty()}));
  return {node.output(0), node.output(1)};
}

}  // namespace belfry
