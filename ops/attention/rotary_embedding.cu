// Rotary embedding. Cosines and sines are computed first, in f64, because sequences and heads share
// them.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/ops/attention/rotation_impl.h"

namespace belfry::cuda {
namespace {

using kernels::Rotation;
using kernels::Rotations;

// The table [time, pairs], an element per thread.
template <class T>
struct FindRotations {
  using Shared = Nothing;
  Rotations of;
  Rotation<T>* table;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i < of.time * of.pairs) table[i] = of.at<T>(i / of.pairs, i % of.pairs);
    });
  }
};

// A pair per thread; y may be x.
template <class T>
struct RotatePairs {
  using Shared = Nothing;
  Rotations of;
  std::int64_t count;
  const Rotation<T>* table;
  const T* x;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= count) return;
      const std::int64_t head = i / of.pairs, t = head / of.heads % of.time;
      const std::int64_t at = head * 2 * of.pairs + i % of.pairs;
      const auto [cosine, sine] = table[t * of.pairs + i % of.pairs];
      const T low = x[at], high = x[at + of.pairs];
      y[at] = low * cosine - high * sine;
      y[at + of.pairs] = high * cosine + low * sine;
    });
  }
};

QueueRun rotary_embedding(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const auto& options = plan.options<RotaryEmbeddingOptions>();
  const Rotations of(x, options.heads, options.base, options.inverse);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const std::int64_t angles = of.time * of.pairs, pairs = x.elements() / 2;
    plan.workspace(angles * static_cast<std::int64_t>(sizeof(Rotation<T>)));
    return [of, angles, pairs](const KernelPointers& p, KernelQueue& queue) {
      auto* const table = reinterpret_cast<Rotation<T>*>(p.workspace());
      launch(queue, FindRotations<T>{of, table}, grid_for(angles));
      launch(queue, RotatePairs<T>{of, pairs, table, p.input<T>(0), p.output<T>()},
             grid_for(pairs));
    };
  });
}

}  // namespace

const GpuKernel rotary(kRotaryEmbedding, rotary_embedding);

}  // namespace belfry::cuda
