// Attention. For tf32 and 16 bits it uses products of matrices (by_products.cuh), or for causal
// attention in 16 bits cuDNN, if that is faster. For f32 and f64 it goes by tiles (tiles.cuh).
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/between_copies.cuh"
#include "belfry/ops/attention/by_products.cuh"
#include "belfry/ops/attention/joined_attention.h"
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
                            .scale = static_cast<float>(shape.scale),
                            .joined = shape.joined};
  const std::optional<CudnnAlgorithm> algorithm = algorithms.attention(attention, ours);
  if (!algorithm) return ours().run;
  plan.workspace(algorithm->workspace_bytes);
  return [attention, algorithm = *algorithm](const KernelPointers& p, KernelQueue& queue) {
    AttentionCall call{.attention = attention, .algorithm = algorithm, .workspace = p.workspace()};
    call.take(p.all_inputs(), p.all_outputs());
    queue.attend(call);
  };
}

// Of so many heads of all samples.
std::int64_t all_tiles(const AttentionShape& shape, std::int64_t heads, std::int64_t of_head) {
  return shape.batch * heads * of_head;
}

QueueRun attention(KernelPlan& plan, Algorithms& algorithms) {
  using namespace by_tiles;
  const SightPlan sight(plan, 0);
  if (rounds(plan))
    return by_products_or_cudnn<by_products::Attention>(plan, algorithms, sight, false);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [sight](const KernelPointers& p, KernelQueue& queue) {
      const std::int64_t count = tiles(sight.shape().queries, kTileQueries);
      const auto [q, k, v] = input_heads<T>(p, sight.shape(), 0);
      launch(queue,
             AttentionQueries<T>{.heads = Heads<T>(sight, p, queue),
                                 .tiles = count,
                                 .q = q,
                                 .k = k,
                                 .v = v,
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
  const auto [q, k, v] = input_heads<T>(p, shape, 1);
  const auto [dq, dk, dv] = output_heads<T>(p, shape);
  const std::size_t y = 1 + shape.tensors(), d_mask = shape.tensors();
  launch(queue,
         AttentionProducts<T>{.shape = shape,
                              .rows = heads.rows(),
                              .y = p.input<T>(y),
                              .dy = p.input<T>(0),
                              .products = products},
         grid_for(heads.rows()));
  const AttentionGradInputs<T> in{.heads = heads,
                                  .dy = p.input<T>(0),
                                  .q = q,
                                  .k = k,
                                  .v = v,
                                  .log_sums = p.input<T>(y + 1),
                                  .products = products};
  const std::int64_t of_queries = tiles(shape.queries, kTileQueries),
                     of_keys = tiles(shape.keys, kTileKeys);
  launch(queue, AttentionGradQueries<T>{in, of_queries, dq},
         grid_of_tiles(all_tiles(shape, shape.heads, of_queries)));
  launch(queue, AttentionGradKeys<T>{in, of_keys, dk, dv},
         grid_of_tiles(all_tiles(shape, shape.kv_heads, of_keys)));
  if (masked == 0) return;
  fill_zeros(queue, p.output<T>(d_mask), masked * static_cast<std::int64_t>(sizeof(T)));
  const AttentionGradMask<T> mask{in, p.output<T>(d_mask)};
  launch(queue, mask, grid_of_tiles(mask.blocks()));
}

QueueRun attention_grad(KernelPlan& plan, Algorithms& algorithms) {
  const SightPlan sight(plan, 1);
  if (rounds(plan))
    return by_products_or_cudnn<by_products::AttentionGrad>(plan, algorithms, sight, true);
  const std::size_t d_mask = sight.shape().tensors();
  const std::int64_t masked = plan.outputs() > d_mask ? plan.output(d_mask).shape.elements() : 0;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const AttentionShape& shape = sight.shape();
    plan.workspace(shape.batch * shape.heads * shape.queries *
                   static_cast<std::int64_t>(sizeof(T)));
    return [sight, masked](const KernelPointers& p, KernelQueue& queue) {
      launch_gradients<T>(sight, masked, p, queue);
    };
  });
}

const Variant joined("attention.joined");

template <GpuLibraryPrepare prepare, std::size_t first>
QueueRun joined_attention(KernelPlan& plan, Algorithms& algorithms) {
  if (joined.on()) return prepare(plan, algorithms);
  return between_copies::prepare(plan, first,
                                 [&](KernelPlan& apart) { return prepare(apart, algorithms); });
}

const GpuKernel kernels_of_attention[] = {
    {kAttention, attention},
    {kAttentionGrad, attention_grad},
    {kJoinedAttention, joined_attention<attention, 0>},
    {kJoinedAttentionGrad, joined_attention<attention_grad, 1>},
};

}  // namespace
}  // namespace belfry::cuda
