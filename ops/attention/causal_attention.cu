// Causal attention. For tf32 and 16 bits it uses products of matrices (by_products.cuh), or for 16
// bits cuDNN, if that is faster. For f32 and f64 a block takes a tile of queries and goes through
// tiles of keys, or the other way round. Scores are added up in shared memory, sums over tiles in
// the outputs. A thread sums in the order of times, so results do not depend on the GPU.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/by_products.cuh"
#include "belfry/ops/attention/causal_attention.h"

namespace belfry::cuda {
namespace {

constexpr int kTileQueries = 16, kTileKeys = 32;
constexpr int kTileColumns = 32;  // columns of a head that are multiplied at once
constexpr int kAttentionThreads = 128;

// The heads of tensors [batch, time, heads * head_dim].
template <class T>
struct Heads {
  explicit Heads(const KernelPlan& plan, const Shape& q)
      : batch(q[0]),
        time(q[1]),
        heads(plan.options<CausalAttentionOptions>().heads),
        columns(q[2] / heads),
        scale(static_cast<T>(attention_scale(plan.options<CausalAttentionOptions>(), columns))) {}

  std::int64_t rows() const { return batch * heads * time; }
  std::int64_t tiles(std::int64_t size) const { return (time + size - 1) / size; }
  Grid grid(std::int64_t size) const {
    return {.blocks = batch * heads * tiles(size), .threads = kAttentionThreads};
  }
  BELFRY_HD std::int64_t step() const { return heads * columns; }
  // The offset of element 0 of a head at time 0; heads are numbered through the batch.
  BELFRY_HD std::int64_t offset(std::int64_t head) const {
    return head / heads * time * step() + head % heads * columns;
  }

  std::int64_t batch, time, heads, columns;
  T scale;
};

// A tile of queries of a head with a tile of its keys. Pointers passed with it point to the head.
struct AttentionTile {
  std::int64_t queries, keys;  // their first times

  BELFRY_HD bool sees(int query, int key) const { return keys + key <= queries + query; }
};

template <class T>
struct TileShared {
  T a[kTileQueries][kTileColumns + 1], b[kTileKeys][kTileColumns + 1];
  T weights[kTileQueries][kTileKeys], grads[kTileQueries][kTileKeys];
  T largest[kTileQueries], sums[kTileQueries], factors[kTileQueries];
};

// Calls f(query, key) for all pairs of a tile.
template <class F>
BELFRY_HD void each_pair(const Block& block, const F& f) {
  block.each([&](int thread) {
    for (int i = thread; i < kTileQueries * kTileKeys; i += block.threads)
      f(i / kTileKeys, i % kTileKeys);
  });
}

// Calls f(row, column) for `rows` rows of a head.
template <class F>
BELFRY_HD void each_element(const Block& block, int rows, std::int64_t columns, const F& f) {
  block.each([&](int thread) {
    for (std::int64_t i = thread; i < rows * columns; i += block.threads)
      f(static_cast<int>(i / columns), i % columns);
  });
}

// Loads columns [column, column + kTileColumns) of rows from `first` on; zeros after the end.
template <class T, int kRows>
BELFRY_HD void load_tile(const Block& block, const Heads<T>& heads, const T* x, std::int64_t first,
                         std::int64_t column, T (&to)[kRows][kTileColumns + 1]) {
  block.each([&](int thread) {
    for (int i = thread; i < kRows * kTileColumns; i += block.threads) {
      const std::int64_t t = first + i / kTileColumns, c = column + i % kTileColumns;
      to[i / kTileColumns][i % kTileColumns] =
          t < heads.time && c < heads.columns ? x[t * heads.step() + c] : T(0);
    }
  });
}

// products[query][key] = a[query] . b[key].
template <class T>
BELFRY_HD void multiply_tile(const Block& block, const Heads<T>& heads, const AttentionTile& tile,
                             const T* a, const T* b, TileShared<T>& shared,
                             T (&products)[kTileQueries][kTileKeys]) {
  each_pair(block, [&](int q, int k) { products[q][k] = 0; });
  for (std::int64_t column = 0; column < heads.columns; column += kTileColumns) {
    load_tile(block, heads, a, tile.queries, column, shared.a);
    load_tile(block, heads, b, tile.keys, column, shared.b);
    each_pair(block, [&](int q, int k) {
      T sum = products[q][k];
      for (int c = 0; c < kTileColumns; ++c) sum += shared.a[q][c] * shared.b[k][c];
      products[q][k] = sum;
    });
  }
}

// A step of the online softmax for one query: scores become weights e^(score - largest). If all
// scores so far are -inf they are not shifted, as the difference would be NaN.
template <class T>
BELFRY_HD void weigh_query(const AttentionTile& tile, int q, T scale, TileShared<T>& shared) {
  T* const scores = shared.weights[q];
  const T before = shared.largest[q];
  T largest = before, sum = 0;
  for (int k = 0; k < kTileKeys; ++k) {
    scores[k] = tile.sees(q, k) ? scores[k] * scale : -math::Format<T>::kInfinity;
    largest = scores[k] > largest ? scores[k] : largest;
  }
  const T shift = largest == -math::Format<T>::kInfinity ? T(0) : largest;
  for (int k = 0; k < kTileKeys; ++k) {
    scores[k] = math::exp(scores[k] - shift);
    sum += scores[k];
  }
  shared.factors[q] = math::exp(before - shift);
  shared.sums[q] = shared.sums[q] * shared.factors[q] + sum;
  shared.largest[q] = largest;
}

// Computes y and the logarithms of sums for a tile of queries.
template <class T>
struct AttentionQueries {
  using Shared = TileShared<T>;
  Heads<T> heads;
  std::int64_t tiles;  // of a head
  const T *q, *k, *v;
  T *y, *log_sums;

  BELFRY_HD void add_values(const Block& block, const Shared& shared, const AttentionTile& tile,
                            std::int64_t at) const {
    each_element(block, kTileQueries, heads.columns, [&](int row, std::int64_t c) {
      const std::int64_t t = tile.queries + row;
      if (t >= heads.time) return;
      T* const to = y + at + t * heads.step() + c;
      T sum = tile.keys == 0 ? T(0) : *to * shared.factors[row];
      for (int key = 0; key < kTileKeys && tile.sees(row, key); ++key)
        sum += shared.weights[row][key] * v[at + (tile.keys + key) * heads.step() + c];
      *to = sum;
    });
  }

  BELFRY_HD void finish(const Block& block, const Shared& shared, std::int64_t first,
                        std::int64_t head) const {
    const std::int64_t at = heads.offset(head);
    each_element(block, kTileQueries, heads.columns, [&](int row, std::int64_t c) {
      const std::int64_t t = first + row;
      if (t >= heads.time) return;
      y[at + t * heads.step() + c] /= shared.sums[row];
      if (c == 0)
        log_sums[head * heads.time + t] = shared.largest[row] + math::log(shared.sums[row]);
    });
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t head = block.index / tiles, at = heads.offset(head);
    AttentionTile tile{.queries = block.index % tiles * kTileQueries, .keys = 0};
    block.each([&](int thread) {
      if (thread >= kTileQueries) return;
      shared.largest[thread] = -math::Format<T>::kInfinity;
      shared.sums[thread] = 0;
    });
    for (; tile.sees(kTileQueries - 1, 0) && tile.keys < heads.time; tile.keys += kTileKeys) {
      multiply_tile(block, heads, tile, q + at, k + at, shared, shared.weights);
      block.each([&](int thread) {
        if (thread < kTileQueries) weigh_query(tile, thread, heads.scale, shared);
      });
      add_values(block, shared, tile, at);
    }
    finish(block, shared, tile.queries, head);
  }
};

// Computes the products of rows of y and dy, one per thread.
template <class T>
struct AttentionProducts {
  using Shared = Nothing;
  Heads<T> heads;
  std::int64_t rows;
  const T *y, *dy;
  T* products;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index * block.threads + thread;
      if (row >= rows) return;
      const std::int64_t at = heads.offset(row / heads.time) + row % heads.time * heads.step();
      T sum = 0;
      for (std::int64_t c = 0; c < heads.columns; ++c) sum += y[at + c] * dy[at + c];
      products[row] = sum;
    });
  }
};

// The inputs of both kernels of gradients.
template <class T>
struct AttentionGradInputs {
  Heads<T> heads;
  std::int64_t tiles;  // of a head
  const T *dy, *q, *k, *v, *log_sums, *products;

  // Computes a tile's weights, and the gradients of its scores before the scale.
  BELFRY_HD void weigh(const Block& block, const AttentionTile& tile, std::int64_t head,
                       TileShared<T>& shared) const {
    const std::int64_t at = heads.offset(head);
    multiply_tile(block, heads, tile, q + at, k + at, shared, shared.weights);
    multiply_tile(block, heads, tile, dy + at, v + at, shared, shared.grads);
    each_pair(block, [&](int query, int key) {
      const std::int64_t t = tile.queries + query, row = head * heads.time + t;
      if (t >= heads.time || !tile.sees(query, key)) return;
      const T weight = math::exp(shared.weights[query][key] * heads.scale - log_sums[row]);
      shared.grads[query][key] = weight * (shared.grads[query][key] - products[row]);
      shared.weights[query][key] = weight;
    });
  }
};

// Computes dq of a tile of queries.
template <class T>
struct AttentionGradQueries {
  using Shared = TileShared<T>;
  AttentionGradInputs<T> in;
  T* dq;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const Heads<T>& heads = in.heads;
    const std::int64_t head = block.index / in.tiles, at = heads.offset(head);
    AttentionTile tile{.queries = block.index % in.tiles * kTileQueries, .keys = 0};
    for (; tile.sees(kTileQueries - 1, 0) && tile.keys < heads.time; tile.keys += kTileKeys) {
      in.weigh(block, tile, head, shared);
      each_element(block, kTileQueries, heads.columns, [&](int row, std::int64_t c) {
        const std::int64_t t = tile.queries + row;
        if (t >= heads.time) return;
        T* const to = dq + at + t * heads.step() + c;
        T sum = 0;
        for (int key = 0; key < kTileKeys && tile.sees(row, key); ++key)
          sum += shared.grads[row][key] * in.k[at + (tile.keys + key) * heads.step() + c];
        *to = (tile.keys == 0 ? T(0) : *to) + sum * heads.scale;
      });
    }
  }
};

// Computes dk and dv of a tile of keys.
template <class T>
struct AttentionGradKeys {
  using Shared = TileShared<T>;
  AttentionGradInputs<T> in;
  T *dk, *dv;

  // Adds the terms of a tile's queries to one element of dk and dv.
  BELFRY_HD void add(const AttentionTile& tile, const Shared& shared, std::int64_t at, int key,
                     std::int64_t c) const {
    const std::int64_t step = in.heads.step(), to = at + (tile.keys + key) * step + c;
    T k_sum = 0, v_sum = 0;
    for (int row = 0; row < kTileQueries && tile.queries + row < in.heads.time; ++row) {
      if (!tile.sees(row, key)) continue;
      const std::int64_t from = at + (tile.queries + row) * step + c;
      k_sum += shared.grads[row][key] * in.q[from];
      v_sum += shared.weights[row][key] * in.dy[from];
    }
    dk[to] += k_sum * in.heads.scale;
    dv[to] += v_sum;
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const Heads<T>& heads = in.heads;
    const std::int64_t head = block.index / in.tiles, at = heads.offset(head);
    const std::int64_t keys = block.index % in.tiles * kTileKeys;
    const auto each_key = [&](const auto& f) {
      each_element(block, kTileKeys, heads.columns, [&](int key, std::int64_t c) {
        if (keys + key < heads.time) f(key, c);
      });
    };
    each_key([&](int key, std::int64_t c) {
      dk[at + (keys + key) * heads.step() + c] = 0;
      dv[at + (keys + key) * heads.step() + c] = 0;
    });
    AttentionTile tile{.queries = keys / kTileQueries * kTileQueries, .keys = keys};
    for (; tile.queries < heads.time; tile.queries += kTileQueries) {
      in.weigh(block, tile, head, shared);
      each_key([&](int key, std::int64_t c) { add(tile, shared, at, key, c); });
    }
  }
};

by_products::HeadSizes head_sizes(const KernelPlan& plan, const Shape& q) {
  const auto& options = plan.options<CausalAttentionOptions>();
  return {q, options.heads, attention_scale(options, q[2] / options.heads)};
}

bool rounds(const KernelPlan& plan) {
  return is_half(plan.dtype()) || (plan.dtype() == DType::kF32 && plan.node().origin().tf32);
}

// Our kernels and cuDNN write the same logarithms of sums, so either may compute the gradient of
// the other's forward pass.
template <template <class> class ByProducts>
QueueRun by_products_or_cudnn(KernelPlan& plan, Algorithms& algorithms,
                              const by_products::HeadSizes& heads, bool gradient) {
  const auto ours = [&]() -> OwnKernel {
    QueueRun run = by_products::prepare<ByProducts>(plan, algorithms, heads);
    return {.run = std::move(run), .workspace_bytes = plan.workspace_bytes()};
  };
  if (!is_half(plan.dtype()) || heads.elements() == 0) return ours().run;
  const Attention attention{.gradient = gradient,
                            .dtype = plan.dtype(),
                            .batch = heads.batch,
                            .time = heads.time,
                            .heads = heads.heads,
                            .head_dim = heads.columns};
  const std::optional<CudnnAlgorithm> algorithm = algorithms.attention(attention, ours);
  if (!algorithm) return ours().run;
  plan.workspace(algorithm->workspace_bytes);
  return [attention, algorithm = *algorithm, scale = heads.scale](const KernelPointers& p,
                                                                  KernelQueue& queue) {
    AttentionCall call{
        .attention = attention, .algorithm = algorithm, .scale = scale, .workspace = p.workspace()};
    for (std::size_t i = 0; i < p.inputs(); ++i) call.in[i] = p.input<void>(i);
    for (std::size_t i = 0; i < p.outputs(); ++i) call.out[i] = p.output<void>(i);
    queue.attend(call);
  };
}

QueueRun attention(KernelPlan& plan, Algorithms& algorithms) {
  if (rounds(plan))
    return by_products_or_cudnn<by_products::Attention>(
        plan, algorithms, head_sizes(plan, plan.input(0).shape), false);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return
        [heads = Heads<T>(plan, plan.input(0).shape)](const KernelPointers& p, KernelQueue& queue) {
          launch(queue,
                 AttentionQueries<T>{.heads = heads,
                                     .tiles = heads.tiles(kTileQueries),
                                     .q = p.input<T>(0),
                                     .k = p.input<T>(1),
                                     .v = p.input<T>(2),
                                     .y = p.output<T>(0),
                                     .log_sums = p.output<T>(1)},
                 heads.grid(kTileQueries));
        };
  });
}

template <class T>
void launch_gradients(const Heads<T>& heads, const KernelPointers& p, KernelQueue& queue) {
  T* const products = reinterpret_cast<T*>(p.workspace());
  launch(queue,
         AttentionProducts<T>{.heads = heads,
                              .rows = heads.rows(),
                              .y = p.input<T>(4),
                              .dy = p.input<T>(0),
                              .products = products},
         grid_for(heads.rows()));
  AttentionGradInputs<T> in{.heads = heads,
                            .tiles = heads.tiles(kTileQueries),
                            .dy = p.input<T>(0),
                            .q = p.input<T>(1),
                            .k = p.input<T>(2),
                            .v = p.input<T>(3),
                            .log_sums = p.input<T>(5),
                            .products = products};
  launch(queue, AttentionGradQueries<T>{in, p.output<T>(0)}, heads.grid(kTileQueries));
  in.tiles = heads.tiles(kTileKeys);
  launch(queue, AttentionGradKeys<T>{in, p.output<T>(1), p.output<T>(2)}, heads.grid(kTileKeys));
}

QueueRun attention_grad(KernelPlan& plan, Algorithms& algorithms) {
  if (rounds(plan))
    return by_products_or_cudnn<by_products::AttentionGrad>(
        plan, algorithms, head_sizes(plan, plan.input(1).shape), true);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const Heads<T> heads(plan, plan.input(1).shape);
    plan.workspace(heads.rows() * static_cast<std::int64_t>(sizeof(T)));
    return
        [heads](const KernelPointers& p, KernelQueue& queue) { launch_gradients(heads, p, queue); };
  });
}

const GpuKernel kernels_of_attention[] = {
    {kCausalAttention, attention},
    {kCausalAttentionGrad, attention_grad},
};

}  // namespace
}  // namespace belfry::cuda
