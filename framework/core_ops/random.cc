#include "belfry/framework/core_ops/random.h"

#include <cmath>
#include <numbers>

namespace belfry {
namespace {

struct RandomUniformOptions {
  Shape shape;
  double low = 0, high = 1;
  DType dtype = DType::kF32;
};

struct RandomNormalOptions {
  Shape shape;
  double stddev = 1;
  DType dtype = DType::kF32;
};

template <class RandomOptions>
OutputTypes random_shape(const ShapeContext& c) {
  const auto& options = c.options<RandomOptions>();
  c.require(is_floating(options.dtype), "random numbers are floating point, not ",
            name_of(options.dtype));
  c.require(options.shape.is_fully_known(), "shape ", options.shape, " must be known");
  return {{options.shape, options.dtype}};
}

// SplitMix64's finaliser (Steele et al. 2014).
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// In [0, 1), 53 bits.
double unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

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
  const double low = options.low, width = options.high - options.low;
  return random_kernel(plan, [=](std::uint64_t key, std::uint64_t step, std::uint64_t i) {
    return low + width * unit(mix(key, step, i));
  });
}

KernelRun normal_reference(KernelPlan& plan) {
  const double stddev = plan.options<RandomNormalOptions>().stddev;
  // Box and Muller (1958); 1 - u lies in (0, 1].
  return random_kernel(plan, [=](std::uint64_t key, std::uint64_t step, std::uint64_t i) {
    const double radius = std::sqrt(-2 * std::log(1 - unit(mix(key, step, 2 * i))));
    return stddev * radius * std::cos(2 * std::numbers::pi * unit(mix(key, step, 2 * i + 1)));
  });
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

std::uint64_t random_key(const Node& node) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : node.logical_name())
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash = scramble(hash + node.graph().seed() * 0x9e3779b97f4a7c15);
  return scramble(hash + static_cast<std::uint64_t>(node.replica()) * 0x9e3779b97f4a7c15);
}

std::uint64_t mix(std::uint64_t key, std::uint64_t step, std::uint64_t element) {
  return scramble(scramble(key + step * 0x9e3779b97f4a7c15) + element * 0xd1342543de82ef95);
}

}  // namespace belfry
