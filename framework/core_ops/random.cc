#include "belfry/framework/core_ops/random.h"

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

template <class Draw>
KernelRun random_kernel(KernelPlan& plan, Draw draw) {
  const std::uint64_t key = random_key(plan.node());
  return visit_floating(plan.dtype(), [&](auto zero) -> KernelRun {
    using T = decltype(zero);
    return [key, draw](const Pointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = static_cast<T>(draw(key, p.step(), static_cast<std::uint64_t>(i)));
    };
  });
}

KernelRun uniform_reference(KernelPlan& plan) {
  const auto& options = plan.options<RandomUniformOptions>();
  return random_kernel(plan, functors::Uniform{options.low, options.high - options.low});
}

KernelRun normal_reference(KernelPlan& plan) {
  return random_kernel(plan, functors::Normal{plan.options<RandomNormalOptions>().stddev});
}

}  // namespace

const Op kRandomUniform{.name = "RandomUniform",
                        .inputs = 0,
                        .shape = random_shape<RandomUniformOptions>,
                        .no_gradient = "it has no inputs",
                        .split = Split::kElements,
                        .random = true,
                        .reference = uniform_reference};

const Op kRandomNormal{.name = "RandomNormal",
                       .inputs = 0,
                       .shape = random_shape<RandomNormalOptions>,
                       .no_gradient = "it has no inputs",
                       .split = Split::kElements,
                       .random = true,
                       .reference = normal_reference};

Output random_uniform(Graph& graph, Shape shape, double low, double high, DType dtype, At at) {
  return graph
      .add(kRandomUniform, {}, at,
           Options(RandomUniformOptions{std::move(shape), low, high, dtype}))
      .output();
}

Output random_normal(Graph& graph, Shape shape, double stddev, DType dtype, At at) {
  return graph
      .add(kRandomNormal, {}, at, Options(RandomNormalOptions{std::move(shape), stddev, dtype}))
      .output();
}

std::uint64_t random_key(const Node& node, bool of_all_towers) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : node.logical_name())
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = kernels::scramble(hash + node.graph().seed() * 0x9e3779b97f4a7c15);
  if (of_all_towers) return hash;
  return kernels::scramble(hash +
                           static_cast<std::uint64_t>(node.origin().replica) * 0x9e3779b97f4a7c15);
}

}  // namespace belfry
