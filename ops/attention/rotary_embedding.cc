#include "belfry/ops/attention/rotary_embedding.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/attention/rotation_impl.h"
#include "belfry/ops/kernels/stored_elements.h"

namespace belfry {
namespace {

using kernels::Rotations;

OutputTypes rotary_shape(const ShapeContext& c) {
  const auto& options = c.options<RotaryEmbeddingOptions>();
  c.require(options.heads >= 1, "needs at least 1 head, not ", options.heads);
  c.require(options.base > 0 && std::isfinite(options.base), "the base must be positive, not ",
            options.base);
  c.require_floating(0);
  const Shape& x = c.input(0);
  c.require(x.rank() == 3, "needs a tensor [batch, time, heads * head_dim], not ", x);
  c.require(x[2] == kUnknownSize || x[2] % (2 * options.heads) == 0, options.heads,
            " heads of an even number of columns do not fit the width of ", x);
  return {c.type(0)};
}

std::vector<Output> rotary_gradient(const Node& node, std::span<const Output> grads) {
  RotaryEmbeddingOptions options = node.options<RotaryEmbeddingOptions>();
  options.inverse = !options.inverse;
  return {rotary_embedding(grads[0], options)};
}

Rotations rotations_of(const KernelPlan& plan) {
  const auto& options = plan.options<RotaryEmbeddingOptions>();
  return {plan.input(0).shape, options.heads, options.base, options.inverse};
}

// Cosines and sines [time, pairs].
template <class T>
struct RotationTable {
  explicit RotationTable(const Rotations& of) {
    for (std::int64_t t = 0; t < of.time; ++t)
      for (std::int64_t i = 0; i < of.pairs; ++i) {
        const kernels::Rotation<T> rotation = of.at<T>(t, i);
        cosines.push_back(rotation.cosine);
        sines.push_back(rotation.sine);
      }
  }

  std::vector<T> cosines, sines;
};

template <class T>
BELFRY_KERNEL void rotate_pairs(const T* cosines, const T* sines, std::int64_t count, T* low,
                                T* high) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const T a = low[i], b = high[i];
    low[i] = a * cosines[i] - b * sines[i];
    high[i] = b * cosines[i] + a * sines[i];
  }
}

// Calls each(offset of a head at a time, offset in the table) in a range of dimension 0.
template <class Each>
void for_each_rotation(const Rotations& of, const KernelPointers& p, const Each& each) {
  for (std::int64_t row = p.begin() * of.time; row < p.end() * of.time; ++row)
    for (std::int64_t h = 0; h < of.heads; ++h)
      each((row * of.heads + h) * 2 * of.pairs, row % of.time * of.pairs);
}

// Calls f(T{}) with the type in which kernels compute.
template <class F>
KernelRun visit_rotated(const KernelPlan& plan, const F& f) {
  return visit_floating(is_half(plan.dtype()) ? DType::kF32 : plan.dtype(), f);
}

constexpr std::int64_t kPairsAtOnce = 256;

// Rotates the head at `at` by the cosines and sines of its pairs. y may be x.
template <class T>
void rotate_head(const kernels::StoredElements<T>& stored, const void* x, std::int64_t at,
                 std::int64_t pairs, const T* cosines, const T* sines, void* y) {
  T low[kPairsAtOnce], high[kPairsAtOnce];
  for (std::int64_t i = 0; i < pairs; i += kPairsAtOnce) {
    const std::int64_t count = std::min(kPairsAtOnce, pairs - i);
    stored.load(x, at + i, count, low);
    stored.load(x, at + pairs + i, count, high);
    rotate_pairs(cosines + i, sines + i, count, low, high);
    stored.store(low, count, y, at + i);
    stored.store(high, count, y, at + pairs + i);
  }
}

KernelRun rotary_cpu(KernelPlan& plan) {
  const Rotations of = rotations_of(plan);
  return visit_rotated(plan, [&]<class T>(T) -> KernelRun {
    return [of, table = std::make_shared<const RotationTable<T>>(of),
            stored = kernels::StoredElements<T>(plan.dtype())](const KernelPointers& p) {
      for_each_rotation(of, p, [&](std::int64_t at, std::int64_t angles) {
        rotate_head(stored, p.input<void>(0), at, of.pairs, table->cosines.data() + angles,
                    table->sines.data() + angles, p.output<void>());
      });
    };
  });
}

// Rotates one pair after the other, with angles by pow().
template <class T>
void plain_rotate_head(const kernels::StoredElements<T>& stored, const void* x, std::int64_t at,
                       std::int64_t pairs, std::int64_t t, const RotaryEmbeddingOptions& options,
                       void* y) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(pairs);
    const double angle = static_cast<double>(t) / std::pow(options.base, share);
    const double cosine = std::cos(angle), sine = std::sin(options.inverse ? -angle : angle);
    T low, high;
    stored.load(x, at + i, 1, &low);
    stored.load(x, at + pairs + i, 1, &high);
    const T turned[] = {static_cast<T>(low * cosine - high * sine),
                        static_cast<T>(high * cosine + low * sine)};
    stored.store(turned, 1, y, at + i);
    stored.store(turned + 1, 1, y, at + pairs + i);
  }
}

KernelRun rotary_reference(KernelPlan& plan) {
  const auto& options = plan.options<RotaryEmbeddingOptions>();
  const Rotations of = rotations_of(plan);
  return visit_rotated(plan, [&]<class T>(T) -> KernelRun {
    return
        [of, options, stored = kernels::StoredElements<T>(plan.dtype())](const KernelPointers& p) {
          for_each_rotation(of, p, [&](std::int64_t at, std::int64_t angles) {
            plain_rotate_head(stored, p.input<void>(0), at, of.pairs,
                              of.pairs == 0 ? 0 : angles / of.pairs, options, p.output<void>());
          });
        };
  });
}

}  // namespace

const Op kRotaryEmbedding{.name = "RotaryEmbedding",
                          .inputs = 1,
                          .shape = rotary_shape,
                          .gradient = rotary_gradient,
                          .split = WorkSplit::kRows,
                          .shards = by_rows<1>,
                          .in_place = InPlace::kFirst,
                          .cpu = rotary_cpu,
                          .reference = rotary_reference,
                          .half = true};
const StoredOptions<RotaryEmbeddingOptions> kStoredRotaryEmbedding(kRotaryEmbedding);

Output rotary_embedding(Output x, RotaryEmbeddingOptions options, At at) {
  return x.graph().add(kRotaryEmbedding, {x}, at, NodeOptions(options)).output();
}

}  // namespace belfry
