#include "belfry/framework/core_ops/random.h"

#include <cmath>
#include <span>

#include "belfry/framework/base/fnv1a.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/counter.h"

namespace belfry {
namespace {

void require_range(const ShapeContext& c, const RandomUniformOptions& options) {
  c.require(options.low <= options.high, "numbers from ", options.low, " to ", options.high,
            " cannot be drawn");
}
void require_range(const ShapeContext& c, const RandomNormalOptions& options) {
  c.require(options.stddev >= 0 && std::isfinite(options.stddev),
            "the standard deviation must be a finite number >= 0, not ", options.stddev);
}

template <class RandomOptions>
OutputTypes random_shape(const ShapeContext& c) {
  const auto& options = c.options<RandomOptions>();
  c.require(is_floating(options.dtype), "random numbers are floating point, not ",
            name_of(options.dtype));
  require_range(c, options);
  c.require(options.shape.is_fully_known(), "shape ", options.shape, " must be known");
  if (c.inputs() == 0) return {{options.shape, options.dtype}};
  c.require(c.input(0).rank() > 0, "needs a batch of samples, not a scalar");
  std::vector<std::int64_t> dims = options.shape.dims();
  dims.insert(dims.begin(), c.input(0)[0]);
  return {{Shape(dims), options.dtype}};
}

// The values do not depend on the samples.
std::vector<Output> random_gradient(const Node& node, std::span<const Output>) {
  return std::vector<Output>(node.inputs().size());
}

// first: the number of element 0.

template <class Draw, class T>
BELFRY_KERNEL void draw_fast(Draw draw, std::uint64_t key, std::uint64_t step, std::int64_t first,
                             std::int64_t begin, std::int64_t end, T* y) {
  for (std::int64_t i = begin; i < end; ++i)
    y[i] = draw.template number<T>(key, step, static_cast<std::uint64_t>(first + i));
}

template <class Draw, class T>
void draw_plainly(Draw draw, std::uint64_t key, std::uint64_t step, std::int64_t first,
                  std::int64_t begin, std::int64_t end, T* y) {
  for (std::int64_t i = begin; i < end; ++i)
    y[i] = draw.template number<T>(key, step, static_cast<std::uint64_t>(first + i));
}

template <class RandomOptions, class Draw>
KernelRun random_kernel(const KernelPlan& plan, Draw draw, bool plainly) {
  const bool fixed = plan.options<RandomOptions>().fixed;
  const bool numbered = plan.batch().numbered;
  const std::uint64_t key = random_key(plan.node(), numbered);
  const Shape& shape = plan.output().shape;
  const std::int64_t row = numbered ? shape.product(1, shape.rank()) : 0;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const auto fill = plainly ? draw_plainly<Draw, T> : draw_fast<Draw, T>;
    return [key, row, draw, fixed, fill](const KernelPointers& p) {
      const std::int64_t before = fixed ? static_cast<std::int64_t>(p.step()) : 0;
      fill(draw, key, fixed ? 0 : p.step(), (before + p.first_row()) * row, p.begin(), p.end(),
           p.output<T>());
    };
  });
}

functors::Uniform uniform_of(const KernelPlan& plan) {
  const auto& options = plan.options<RandomUniformOptions>();
  return {options.low, options.high - options.low};
}

template <bool plainly>
KernelRun uniform(KernelPlan& plan) {
  return random_kernel<RandomUniformOptions>(plan, uniform_of(plan), plainly);
}
template <bool plainly>
KernelRun normal(KernelPlan& plan) {
  return functors::visit_normal(plan.options<RandomNormalOptions>(), [&](auto draw) -> KernelRun {
    return random_kernel<RandomNormalOptions>(plan, draw, plainly);
  });
}

}  // namespace

const Op kRandomUniform{.name = "RandomUniform",
                        .inputs = kVariadicInputs,
                        .shape = random_shape<RandomUniformOptions>,
                        .gradient = random_gradient,
                        .split = WorkSplit::kElements,
                        .shards = by_rows<1>,
                        .random = true,
                        .cpu = uniform<false>,
                        .reference = uniform<true>};

const Op kRandomNormal{.name = "RandomNormal",
                       .inputs = kVariadicInputs,
                       .shape = random_shape<RandomNormalOptions>,
                       .gradient = random_gradient,
                       .split = WorkSplit::kElements,
                       .shards = by_rows<1>,
                       .random = true,
                       .cpu = normal<false>,
                       .reference = normal<true>};
const StoredOptions<RandomUniformOptions> kStoredRandomUniform(kRandomUniform);
const StoredOptions<RandomNormalOptions> kStoredRandomNormal(kRandomNormal);

Output random_uniform(Graph& graph, Shape shape, double low, double high, DType dtype, At at) {
  return graph
      .add(kRandomUniform, {}, at,
           NodeOptions(RandomUniformOptions{std::move(shape), low, high, dtype}))
      .output();
}

Output random_normal(Graph& graph, Shape shape, double stddev, DType dtype, At at) {
  return graph
      .add(kRandomNormal, {}, at, NodeOptions(RandomNormalOptions{std::move(shape), stddev, dtype}))
      .output();
}

std::uint64_t random_key(const Node& node, bool of_all_towers) {
  // A recomputed copy (GradientOptions::recompute) draws the same numbers as the first node.
  if (const Node* const first = node.origin().forward; first && &first->op() == &node.op())
    return random_key(*first, of_all_towers);
  Fnv1a name;
  name.add(std::as_bytes(std::span(node.logical_name())));
  const std::uint64_t hash =
      kernels::scramble(name.value() + node.graph().seed() * 0x9e3779b97f4a7c15);
  if (of_all_towers) return hash;
  return kernels::scramble(hash +
                           static_cast<std::uint64_t>(node.origin().replica) * 0x9e3779b97f4a7c15);
}

}  // namespace belfry
