#include "belfry/framework/core_ops/random.h"

#include <span>

#include "belfry/framework/base/fnv1a.h"
#include "belfry/framework/kernels/counter.h"

namespace belfry {
namespace {

template <class RandomOptions>
OutputTypes random_shape(const ShapeContext& c) {
  const auto& options = c.options<RandomOptions>();
  c.require(is_floating(options.dtype), "random numbers are floating point, not ",
            name_of(options.dtype));
  c.require(options.shape.is_fully_known(), "shape ", options.shape, " must be known");
  return {{options.shape, options.dtype}};
}

template <class Draw, class T>
BELFRY_KERNEL void draw_fast(Draw draw, std::uint64_t key, std::uint64_t step, std::int64_t begin,
                             std::int64_t end, T* y) {
  for (std::int64_t i = begin; i < end; ++i)
    y[i] = draw.template number<T>(key, step, static_cast<std::uint64_t>(i));
}

template <class Draw, class T>
void draw_plainly(Draw draw, std::uint64_t key, std::uint64_t step, std::int64_t begin,
                  std::int64_t end, T* y) {
  for (std::int64_t i = begin; i < end; ++i)
    y[i] = draw.template number<T>(key, step, static_cast<std::uint64_t>(i));
}

template <class Draw>
KernelRun random_kernel(const KernelPlan& plan, Draw draw, bool plainly) {
  const std::uint64_t key = random_key(plan.node());
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const auto fill = plainly ? draw_plainly<Draw, T> : draw_fast<Draw, T>;
    return [key, draw, fill](const KernelPointers& p) {
      fill(draw, key, p.step(), p.begin(), p.end(), p.output<T>());
    };
  });
}

functors::Uniform uniform_of(const KernelPlan& plan) {
  const auto& options = plan.options<RandomUniformOptions>();
  return {options.low, options.high - options.low};
}
functors::Normal normal_of(const KernelPlan& plan) {
  return {plan.options<RandomNormalOptions>().stddev};
}

KernelRun uniform_cpu(KernelPlan& plan) { return random_kernel(plan, uniform_of(plan), false); }
KernelRun uniform_reference(KernelPlan& plan) {
  return random_kernel(plan, uniform_of(plan), true);
}
KernelRun normal_cpu(KernelPlan& plan) { return random_kernel(plan, normal_of(plan), false); }
KernelRun normal_reference(KernelPlan& plan) { return random_kernel(plan, normal_of(plan), true); }

}  // namespace

const Op kRandomUniform{.name = "RandomUniform",
                        .inputs = 0,
                        .shape = random_shape<RandomUniformOptions>,
                        .no_gradient = "it has no inputs",
                        .split = WorkSplit::kElements,
                        .random = true,
                        .cpu = uniform_cpu,
                        .reference = uniform_reference};

const Op kRandomNormal{.name = "RandomNormal",
                       .inputs = 0,
                       .shape = random_shape<RandomNormalOptions>,
                       .no_gradient = "it has no inputs",
                       .split = WorkSplit::kElements,
                       .random = true,
                       .cpu = normal_cpu,
                       .reference = normal_reference};

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
