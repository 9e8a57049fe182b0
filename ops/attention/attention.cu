// Attention. For tf32 and 16 bits it uses products of matrices (by_products.cuh), or for causal
// attention in 16 bits cuDNN, if that is faster. For f32 and f64 it goes by tiles (tiles.cuh).
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/by_products.cuh"
#include "belfry/ops/attention/tiles.cuh"

namespace belfry::cuda {
namespace {

bool rounds(const KernelPlan& plan) {
  return is_half(plan.dtype()) || (plan.dtype() == DType::kF32 && plan.node().origin().tf32);
}

// Our kernels and cuDNN write the same logarithms of sums, so either may compute the gradient of
// the other's forward pass.
template <template <class> class ByProducts>
QueueRun by_products_or_cudnn(KernelPlan& plan, Algorithms& algorithms, const SightPlan& sight,
                              bool gradient) {
  const AttentionShape& shape = sight.shape();
  const auto ours = [&]() -> OwnKernel {
    QueueRun run = by_products::prepare<ByProducts>(plan, algorithms, sight);
    return {.run = std::move(run), .workspace_bytes = plan.workspace_bytes()};
  };
  if (!is_half(plan.dtype()) || plan.output().shape.elements() == 0 || !sight.plain_causal())
    return ours().run;
  const Attention attention{.gradient = gradient,
                            .dtype = plan.dtype(),
                            .batch = shape.batch,
                            .time = shape.queries,
                            .heads = shape.heads,
                            .head_dim = shape.head_dim,
                            .scale = static_cast<float>(shape.scale)};
  const std::optional<CudnnAlgorithm> algorithm = algorithms.attention(attention, ours);
  if (!algorithm) return ours().run;
  plan.workspace(algorithm->workspace_bytes);
  return [attention, algorithm = *algorithm](const KernelPointers& p, KernelQueue& queue) {
    AttentionCall call{.attention = attention, .algorithm = algorithm, .workspace = p.workspace()};
    for (std::size_t i = 0; i < p.inputs(); ++i) call.in[i] = p.input<void>(i);
    for (std::size_t i = 0; i < p.outputs(); ++i) call.out[i] = p.output<void>(i);
    queue.attend(call);
  };
}

// Of so many heads of all samples.
std::int64_t all_tiles(const AttentionShape& shape, std::int64_t heads, std::int64_t of_head) {
  return shape.batch * heads * of_head;
}

QueueRun attention(KernelPlan& plan, Algorithms& algorithms) {
  using namespace by_tiles;
  const SightPlan sight(plan, 0, 3);
  if (rounds(plan))
    return by_products_or_cudnn<by_products::Attention>(plan, algorithms, sight, false);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [sight](const KernelPointers& p, KernelQueue& queue) {
      const std::int64_t count = tiles(sight.shape().queries, kTileQueries);
      launch(queue,
             AttentionQueries<T>{.heads = Heads<T>(sight, p, queue),
                                 .tiles = count,
                                 .q = p.input<T>(0),
                                 .k = p.input<T>(1),
                                 .v = p.input<T>(2),
                                 .y = p.output<T>(0),
                                 .log_sums = p.output<T>(1)},
             grid_of_tiles(all_tiles(sight.shape(), sight.shape().heads, count)));
    };
  });
}

template <class T>
void launch_gradients(const SightPlan& sight, std::int64_t masked, const KernelPointers& p,
                      KernelQueue& queue) {
  using namespace by_tiles;
  const Heads<T> heads(sight, p, queue);
  const AttentionShape& shape = sight.shape();
  T* const products = reinterpret_cast<T*>(p.workspace());
  launch(queue,
         AttentionProducts<T>{.shape = shape,
                              .rows = heads.rows(),
                              .y = p.input<T>(4),
                              .dy = p.input<T>(0),
                              .products = products},
         grid_for(heads.rows()));
  const AttentionGradInputs<T> in{.heads = heads,
                                  .dy = p.input<T>(0),
                                  .q = p.input<T>(1),
                                  .k = p.input<T>(2),
                                  .v = p.input<T>(3),
                                  .log_sums = p.input<T>(5),
                                  .products = products};
  const std::int64_t of_queries = tiles(shape.queries, kTileQueries),
                     of_keys = tiles(shape.keys, kTileKeys);
  launch(queue, AttentionGradQueries<T>{in, of_queries, p.output<T>(0)},
         grid_of_tiles(all_tiles(shape, shape.heads, of_queries)));
  launch(queue, AttentionGradKeys<T>{in, of_keys, p.output<T>(1), p.output<T>(2)},
         grid_of_tiles(all_tiles(shape, shape.kv_heads, of_keys)));
  if (masked == 0) return;
  fill_zeros(queue, p.output<T>(3), masked * static_cast<std::int64_t>(sizeof(T)));
  const AttentionGradMask<T> mask{in, p.output<T>(3)};
  launch(queue, mask, grid_of_tiles(mask.blocks()));
}

QueueRun attention_grad(KernelPlan& plan, Algorithms& algorithms) {
  const SightPlan sight(plan, 1, 6);
  if (rounds(plan))
    return by_products_or_cudnn<by_products::AttentionGrad>(plan, algorithms, sight, true);
  const std::int64_t masked = plan.outputs() > 3 ? plan.output(3).shape.elements() : 0;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const AttentionShape& shape = sight.shape();
    plan.workspace(shape.batch * shape.heads * shape.queries *
                   static_cast<std::int64_t>(sizeof(T)));
    return [sight, masked](const KernelPointers& p, KernelQueue& queue) {
      launch_gradients<T>(sight, masked, p, queue);
    };
  });
}

const GpuKernel kernels_of_attention[] = {
    {kAttention, attention},
    {kAttentionGrad, attention_grad},
};

}  // namespace
}  // namespace belfry::cuda
