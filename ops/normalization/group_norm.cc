#include "belfry/ops/normalization/group_norm.h"

#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/composed_norm_impl.h"
#include "belfry/ops/normalization/group_norm_impl.h"
#include "belfry/ops/normalization/group_norm_on_host.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

// Input i is x; inputs after it have one value per channel.
void require_samples(const ShapeContext& c, std::size_t i) {
  const auto [groups, epsilon] = c.options<GroupNormOptions>();
  c.require(epsilon >= 0, "epsilon must not be negative, but is ", epsilon);
  c.require_floating(0);
  c.require_same_dtype();
  const Shape& x = c.input(i);
  c.require(x.rank() >= 2, "needs samples with channels, but the shape is ", x);
  c.require(groups >= 1, "groups must be at least 1, not ", groups);
  c.require(x.back() != kUnknownSize && x.back() % groups == 0, "the channels of ", x,
            " cannot be divided into ", groups, " groups of one size");
  for (std::size_t k = i + 1; k < c.inputs(); ++k)
    c.require(c.input(k).compatible(Shape{x.back()}), "input ", k, " has shape ", c.input(k),
              ", but there are ", x.back(), " channels: ", x);
}

OutputTypes group_norm_shape(const ShapeContext& c) {
  require_samples(c, 0);
  return {c.input(0)};
}

OutputTypes group_norm_grad_shape(const ShapeContext& c) {
  require_samples(c, 1);
  c.require(c.input(0).compatible(c.input(1)), "gradient and input have shapes ", c.input(0),
            " and ", c.input(1));
  const Shape channels{c.input(1).back()};
  return {c.input(1), channels, channels};
}

std::vector<Output> group_norm_gradient(const Node& node, std::span<const Output> grads) {
  const Node& grad = node.graph().add(kGroupNormGrad, {grads[0], node.input(0), node.input(1)}, {},
                                      node.raw_options());
  return {grad.output(0), grad.output(1), grad.output(2)};
}

std::vector<Output> group_norm_grad_gradient(const Node& node, std::span<const Output> grads) {
  const auto [groups, epsilon] = node.options<GroupNormOptions>();
  const Shape& shape = node.input(1).shape();
  std::int64_t pixels = 1;
  for (std::size_t axis = 1; axis + 1 < shape.rank(); ++axis) {
    require(shape[axis] != kUnknownSize, node.describe(), ": second derivatives need the size of ",
            node.input(1).type(), "; give the placeholder all sizes but that of the batch");
    pixels *= shape[axis];
  }
  const Shape split{shape[0], pixels, groups, shape.back() / groups};
  return norm_grad_gradient(node, grads, [&, epsilon = epsilon](Output x) {
    return reshape_like(composed_norm(reshape(x, split), {1, 3}, epsilon), x);
  });
}

// Shards have rows of dx, and partial sums of the other gradients.
Sharding group_norm_grad_shards(const ShardContext& c) {
  Sharding sharding = row_shards({c.node, c.inputs, c.outputs.first(1), c.divisions, c.samples}, 3);
  if (sharding.divides()) sharding.outputs.resize(c.outputs.size(), Division::partial());
  return sharding;
}

// The plain kernels: group by group, in f64. The elements of a group are visit(offset, channel).
template <class Visit>
void for_each_of_group(const GroupedSamples& s, std::int64_t sample, std::int64_t group,
                       const Visit& visit) {
  for (std::int64_t pixel = 0; pixel < s.pixels; ++pixel)
    for (std::int64_t c = group * s.width(); c < (group + 1) * s.width(); ++c)
      visit((sample * s.pixels + pixel) * s.channels + c, c);
}

struct PlainGroup {
  template <class T>
  PlainGroup(const GroupedSamples& s, std::int64_t sample, std::int64_t group, const T* x) {
    const auto count = static_cast<double>(s.values());
    for_each_of_group(s, sample, group,
                      [&](std::int64_t at, std::int64_t) { mean += x[at] / count; });
    double squares = 0;
    for_each_of_group(s, sample, group, [&](std::int64_t at, std::int64_t) {
      squares += (x[at] - mean) * (x[at] - mean);
    });
    spread = std::sqrt(squares / count + s.epsilon);
  }
  double of(double x) const { return (x - mean) / spread; }

  double mean = 0, spread;
};

KernelRun group_norm_reference(KernelPlan& plan) {
  const GroupedSamples s(plan.input(0).shape, plan.options<GroupNormOptions>());
  return typed_kernel(plan, [s]<class T>(T, const KernelPointers& p) {
    const T *const x = p.input<T>(0), *const gamma = p.input<T>(1), *const beta = p.input<T>(2);
    for (std::int64_t n = p.begin(); n < p.end(); ++n)
      for (std::int64_t g = 0; g < s.groups; ++g) {
        const PlainGroup group(s, n, g, x);
        for_each_of_group(s, n, g, [&](std::int64_t at, std::int64_t c) {
          p.output<T>()[at] = static_cast<T>(group.of(x[at]) * gamma[c] + beta[c]);
        });
      }
  });
}

KernelRun group_norm_grad_reference(KernelPlan& plan) {
  const GroupedSamples s(plan.input(1).shape, plan.options<GroupNormOptions>());
  return typed_kernel(plan, [s]<class T>(T, const KernelPointers& p) {
    const T *const dy = p.input<T>(0), *const x = p.input<T>(1), *const gamma = p.input<T>(2);
    std::vector<double> dgamma(static_cast<std::size_t>(s.channels)), dbeta(dgamma);
    const auto count = static_cast<double>(s.values());
    for (std::int64_t n = 0; n < s.samples; ++n)
      for (std::int64_t g = 0; g < s.groups; ++g) {
        const PlainGroup group(s, n, g, x);
        double sum = 0, product = 0;
        for_each_of_group(s, n, g, [&](std::int64_t at, std::int64_t c) {
          const double z = group.of(x[at]);
          sum += double{dy[at]} * gamma[c];
          product += double{dy[at]} * gamma[c] * z;
          dgamma[static_cast<std::size_t>(c)] += dy[at] * z;
          dbeta[static_cast<std::size_t>(c)] += dy[at];
        });
        for_each_of_group(s, n, g, [&](std::int64_t at, std::int64_t c) {
          p.output<T>()[at] = static_cast<T>(
              (double{dy[at]} * gamma[c] - sum / count - group.of(x[at]) * product / count) /
              group.spread);
        });
      }
    for (std::size_t c = 0; c < dgamma.size(); ++c) {
      p.output<T>(1)[c] = static_cast<T>(dgamma[c]);
      p.output<T>(2)[c] = static_cast<T>(dbeta[c]);
    }
  });
}

int known_channels(Output x, At at) {
  const std::int64_t channels = x.shape().rank() > 0 ? x.shape().back() : kUnknownSize;
  require(channels != kUnknownSize, "instance_norm (", at.site, "): the channels of ", x.type(),
          " must be known");
  return static_cast<int>(channels);
}

}  // namespace

const Op kGroupNorm{.name = "GroupNorm",
                    .inputs = 3,
                    .shape = group_norm_shape,
                    .gradient = group_norm_gradient,
                    .split = WorkSplit::kRows,
                    .shards = by_rows<1>,
                    .cpu = group_norm_on_host,
                    .reference = group_norm_reference,
                    .autocast = Autocast::kFull};

const Op kGroupNormGrad{.name = "GroupNormGrad",
                        .inputs = 3,
                        .shape = group_norm_grad_shape,
                        .gradient = group_norm_grad_gradient,
                        .missing_grads = true,
                        .shards = group_norm_grad_shards,
                        .cpu = group_norm_gradient_on_host,
                        .reference = group_norm_grad_reference};
const StoredOptions<GroupNormOptions> kStoredGroupNorm(kGroupNorm, kGroupNormGrad);

Output group_norm(Output x, Output gamma, Output beta, GroupNormOptions options, At at) {
  return x.graph().add(kGroupNorm, {x, gamma, beta}, at, NodeOptions(options)).output();
}

Output instance_norm(Output x, Output gamma, Output beta, InstanceNormOptions options, At at) {
  const int channels = known_channels(x, at);
  return group_norm(x, gamma, beta, {.groups = channels, .epsilon = options.epsilon}, at);
}

Output instance_norm(Output x, InstanceNormOptions options, At at) {
  const int channels = known_channels(x, at);
  const auto all = [&](double value) { return fill(x.graph(), {channels}, value, x.dtype(), at); };
  return instance_norm(x, all(1), all(0), options, at);
}

}  // namespace belfry
