// Attention by tiles: a block of threads takes a tile of queries and goes through tiles of keys, or
// the other way round. Scores are added up in shared memory, sums over tiles in the outputs. A
// thread sums in the order of times, so results do not depend on the GPU.
#pragma once
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/sight.cuh"

namespace belfry::cuda::by_tiles {

constexpr int kTileQueries = 16, kTileKeys = 32;
constexpr int kTileColumns = 32;  // columns of a head that are multiplied at once
constexpr int kAttentionThreads = 128;

// A tensor [batch, time, step], of which heads are columns.
struct HeadSteps {
  std::int64_t time, step;  // step: elements from one time to the next
};

// What all kernels of tiles know.
template <class T>
struct Heads {
  explicit Heads(const SightPlan& plan, const KernelPointers& p, KernelQueue& queue)
      : sight(plan.sight<T>(p, queue)), scale(static_cast<T>(sight.shape.scale)) {}

  std::int64_t rows() const { return shape().batch * shape().heads * shape().queries; }
  BELFRY_HD const AttentionShape& shape() const { return sight.shape; }
  BELFRY_HD HeadSteps queries() const { return {shape().queries, shape().q_step()}; }
  BELFRY_HD HeadSteps results() const { return {shape().queries, shape().y_step()}; }
  BELFRY_HD HeadSteps keys() const { return {shape().keys, shape().kv_step()}; }

  Sight<T> sight;
  T scale;
};

inline std::int64_t tiles(std::int64_t time, std::int64_t size) { return (time + size - 1) / size; }
inline Grid grid_of_tiles(std::int64_t count) {
  return {.blocks = count, .threads = kAttentionThreads};
}

// A head of queries, numbered through the batch, and the head of keys and values that it uses.
template <class T>
struct HeadView {
  BELFRY_HD HeadView(const Heads<T>& of, std::int64_t number)
      : heads(of),
        sample(number / of.shape().heads),
        head(number % of.shape().heads),
        first_row(number * of.shape().queries),
        keys(of.sight.keys(sample)),
        q(sample * of.queries().time * of.queries().step + head * of.shape().head_dim),
        y(sample * of.results().time * of.results().step + head * of.shape().head_dim),
        k(sample * of.keys().time * of.keys().step +
          head / of.shape().group() * of.shape().head_dim) {}

  BELFRY_HD bool in_range(std::int64_t query, std::int64_t key) const {
    return heads.sight.in_range(query, key, keys);
  }
  BELFRY_HD auto look(std::int64_t query, std::int64_t key) const {
    return heads.sight.look(sample, head, query, key, keys);
  }
  // The first tile of keys, and the key after the last, that a tile of queries sees.
  BELFRY_HD std::int64_t first_tile(std::int64_t queries) const {
    return heads.shape().first_key(queries) / kTileKeys * kTileKeys;
  }
  BELFRY_HD std::int64_t end_key(std::int64_t queries) const {
    return heads.shape().end_key(queries + kTileQueries - 1, keys);
  }

  const Heads<T>& heads;
  std::int64_t sample, head;
  std::int64_t first_row;  // of logarithms of sums
  std::int64_t keys;       // of the sample
  std::int64_t q, y, k;    // the offsets of element 0 at time 0
};

// A tile of queries of a head with a tile of its keys.
struct AttentionTile {
  std::int64_t queries, keys;  // their first times
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

// Loads columns [column, column + kTileColumns) of rows of a head from `first` on; zeros after the
// end.
template <class T, int kRows>
BELFRY_HD void load_tile(const Block& block, const HeadSteps& head, std::int64_t columns,
                         const T* x, std::int64_t first, std::int64_t column,
                         T (&to)[kRows][kTileColumns + 1]) {
  block.each([&](int thread) {
    for (int i = thread; i < kRows * kTileColumns; i += block.threads) {
      const std::int64_t t = first + i / kTileColumns, c = column + i % kTileColumns;
      to[i / kTileColumns][i % kTileColumns] =
          t < head.time && c < columns ? x[t * head.step + c] : T(0);
    }
  });
}

// products[query][key] = a[query] . b[key], where `of` says how the rows of a lie.
template <class T>
BELFRY_HD void multiply_tile(const Block& block, const Heads<T>& heads, const AttentionTile& tile,
                             const HeadSteps& of, const T* a, const T* b, TileShared<T>& shared,
                             T (&products)[kTileQueries][kTileKeys]) {
  const std::int64_t columns = heads.shape().head_dim;
  each_pair(block, [&](int q, int k) { products[q][k] = 0; });
  for (std::int64_t column = 0; column < columns; column += kTileColumns) {
    load_tile(block, of, columns, a, tile.queries, column, shared.a);
    load_tile(block, heads.keys(), columns, b, tile.keys, column, shared.b);
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
BELFRY_HD void weigh_query(const HeadView<T>& head, const AttentionTile& tile, int q,
                           TileShared<T>& shared) {
  T* const scores = shared.weights[q];
  const T before = shared.largest[q];
  T largest = before, sum = 0;
  for (int k = 0; k < kTileKeys; ++k) {
    const auto look = head.look(tile.queries + q, tile.keys + k);
    scores[k] = look.seen ? scores[k] * head.heads.scale + look.added : -math::Format<T>::kInfinity;
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

  BELFRY_HD void add_values(const Block& block, const Shared& shared, const HeadView<T>& head,
                            const AttentionTile& tile, bool first) const {
    each_element(block, kTileQueries, heads.shape().head_dim, [&](int row, std::int64_t c) {
      const std::int64_t t = tile.queries + row;
      if (t >= heads.shape().queries) return;
      T* const to = y + head.y + t * heads.results().step + c;
      T sum = first ? T(0) : *to * shared.factors[row];
      for (int key = 0; key < kTileKeys; ++key)
        if (head.in_range(t, tile.keys + key))
          sum += shared.weights[row][key] * v[head.k + (tile.keys + key) * heads.keys().step + c];
      *to = sum;
    });
  }

  // A query that sees no key has a sum of zero, and gets zeros.
  BELFRY_HD void finish(const Block& block, const Shared& shared, const HeadView<T>& head,
                        std::int64_t first) const {
    each_element(block, kTileQueries, heads.shape().head_dim, [&](int row, std::int64_t c) {
      const std::int64_t t = first + row;
      if (t >= heads.shape().queries) return;
      T& to = y[head.y + t * heads.results().step + c];
      to = heads.shape().may_see_none && shared.sums[row] == 0 ? T(0) : to / shared.sums[row];
      if (c == 0) log_sums[head.first_row + t] = shared.largest[row] + math::log(shared.sums[row]);
    });
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const HeadView<T> head(heads, block.index / tiles);
    const std::int64_t queries = block.index % tiles * kTileQueries;
    const std::int64_t first = head.first_tile(queries), end = head.end_key(queries);
    block.each([&](int thread) {
      if (thread >= kTileQueries) return;
      shared.largest[thread] = -math::Format<T>::kInfinity;
      shared.sums[thread] = 0;
    });
    for (AttentionTile tile{queries, first}; tile.keys < end; tile.keys += kTileKeys) {
      multiply_tile(block, heads, tile, heads.queries(), q + head.q, k + head.k, shared,
                    shared.weights);
      block.each([&](int thread) {
        if (thread < kTileQueries) weigh_query(head, tile, thread, shared);
      });
      add_values(block, shared, head, tile, tile.keys == first);
    }
    finish(block, shared, head, queries);
  }
};

// Computes the products of rows of y and dy, one per thread.
template <class T>
struct AttentionProducts {
  using Shared = Nothing;
  AttentionShape shape;
  std::int64_t rows;
  const T *y, *dy;
  T* products;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index * block.threads + thread;
      if (row >= rows) return;
      const std::int64_t number = row / shape.queries, t = row % shape.queries;
      const std::int64_t at =
          ((number / shape.heads * shape.queries + t) * shape.heads + number % shape.heads) *
          shape.head_dim;
      T sum = 0;
      for (std::int64_t c = 0; c < shape.head_dim; ++c) sum += y[at + c] * dy[at + c];
      products[row] = sum;
    });
  }
};

// The inputs of the kernels of gradients.
template <class T>
struct AttentionGradInputs {
  Heads<T> heads;
  const T *dy, *q, *k, *v, *log_sums, *products;

  // Computes a tile's weights, and the gradients of its scores after the scale: zeros where a key
  // is not seen.
  BELFRY_HD void weigh(const Block& block, const AttentionTile& tile, const HeadView<T>& head,
                       TileShared<T>& shared) const {
    multiply_tile(block, heads, tile, heads.queries(), q + head.q, k + head.k, shared,
                  shared.weights);
    multiply_tile(block, heads, tile, heads.results(), dy + head.y, v + head.k, shared,
                  shared.grads);
    each_pair(block, [&](int query, int key) {
      const std::int64_t t = tile.queries + query, row = head.first_row + t;
      T &weight = shared.weights[query][key], &grad = shared.grads[query][key];
      const auto look = head.look(t, tile.keys + key);
      if (!look.seen) {
        weight = grad = 0;
        return;
      }
      weight = math::exp(weight * heads.scale + look.added - log_sums[row]);
      grad = weight * (grad - products[row]);
    });
  }
};

// Computes dq of a tile of queries.
template <class T>
struct AttentionGradQueries {
  using Shared = TileShared<T>;
  AttentionGradInputs<T> in;
  std::int64_t tiles;  // of a head
  T* dq;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const Heads<T>& heads = in.heads;
    const HeadView<T> head(heads, block.index / tiles);
    const std::int64_t queries = block.index % tiles * kTileQueries, end = head.end_key(queries);
    const auto each = [&](const auto& f) {
      each_element(block, kTileQueries, heads.shape().head_dim, [&](int row, std::int64_t c) {
        const std::int64_t t = queries + row;
        if (t < heads.shape().queries) f(row, c, dq[head.q + t * heads.queries().step + c]);
      });
    };
    each([](int, std::int64_t, T& to) { to = 0; });
    for (AttentionTile tile{queries, head.first_tile(queries)}; tile.keys < end;
         tile.keys += kTileKeys) {
      in.weigh(block, tile, head, shared);
      each([&](int row, std::int64_t c, T& to) {
        T sum = 0;
        for (int key = 0; key < kTileKeys; ++key)
          if (head.in_range(queries + row, tile.keys + key))
            sum +=
                shared.grads[row][key] * in.k[head.k + (tile.keys + key) * heads.keys().step + c];
        to += sum * heads.scale;
      });
    }
  }
};

// Computes dk and dv of a tile of keys, which a group of heads uses.
template <class T>
struct AttentionGradKeys {
  using Shared = TileShared<T>;
  AttentionGradInputs<T> in;
  std::int64_t tiles;  // of a head
  T *dk, *dv;

  // Adds the terms of a tile's queries to element c of a key.
  BELFRY_HD void add(const AttentionTile& tile, const Shared& shared, const HeadView<T>& head,
                     int key, std::int64_t c) const {
    const std::int64_t q_step = in.heads.queries().step, y_step = in.heads.results().step;
    const std::int64_t to = head.k + (tile.keys + key) * in.heads.keys().step + c;
    T k_sum = 0, v_sum = 0;
    for (int row = 0; row < kTileQueries; ++row) {
      if (!head.in_range(tile.queries + row, tile.keys + key)) continue;
      const std::int64_t query = tile.queries + row;
      k_sum += shared.grads[row][key] * in.q[head.q + query * q_step + c];
      v_sum += shared.weights[row][key] * in.dy[head.y + query * y_step + c];
    }
    dk[to] += k_sum * in.heads.scale;
    dv[to] += v_sum;
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const AttentionShape& shape = in.heads.shape();
    const std::int64_t first_head = block.index / tiles * shape.group();
    const std::int64_t keys = block.index % tiles * kTileKeys;
    const auto each_key = [&](const auto& f) {
      each_element(block, kTileKeys, shape.head_dim, [&](int key, std::int64_t c) {
        if (keys + key < shape.keys) f(key, c);
      });
    };
    each_key([&](int key, std::int64_t c) {
      const std::int64_t at =
          HeadView<T>(in.heads, first_head).k + (keys + key) * in.heads.keys().step + c;
      dk[at] = dv[at] = 0;
    });
    const std::int64_t from = shape.causal ? keys / kTileQueries * kTileQueries : 0;
    const std::int64_t end = shape.window > 0 && keys + kTileKeys + shape.window < shape.queries
                                 ? keys + kTileKeys + shape.window
                                 : shape.queries;
    for (std::int64_t g = 0; g < shape.group(); ++g) {
      const HeadView<T> head(in.heads, first_head + g);
      for (AttentionTile tile{from, keys}; tile.queries < end; tile.queries += kTileQueries) {
        in.weigh(block, tile, head, shared);
        each_key([&](int key, std::int64_t c) { add(tile, shared, head, key, c); });
      }
    }
  }
};

// Computes a tile of the gradient of the mask, over all samples, heads and queries that share it.
template <class T>
struct AttentionGradMask {
  using Shared = TileShared<T>;
  AttentionGradInputs<T> in;
  T* d_mask;

  BELFRY_HD std::int64_t query_tiles() const {
    const AttentionShape& s = in.heads.shape();
    return MaskPart::count(s.mask.query_step, (s.queries + kTileQueries - 1) / kTileQueries);
  }
  BELFRY_HD std::int64_t key_tiles() const {
    return (in.heads.shape().keys + kTileKeys - 1) / kTileKeys;
  }
  std::int64_t blocks() const {
    const AttentionShape& s = in.heads.shape();
    return MaskPart::count(s.mask.sample_step, s.batch) *
           MaskPart::count(s.mask.head_step, s.heads) * query_tiles() * key_tiles();
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const AttentionShape& s = in.heads.shape();
    const std::int64_t heads = MaskPart::count(s.mask.head_step, s.heads),
                       rest = block.index / key_tiles() / query_tiles();
    const std::int64_t all_tiles = (s.queries + kTileQueries - 1) / kTileQueries;
    const MaskPart tile(s.mask.query_step, all_tiles, block.index / key_tiles() % query_tiles()),
        head(s.mask.head_step, s.heads, rest % heads),
        sample(s.mask.sample_step, s.batch, rest / heads);
    const std::int64_t keys = block.index % key_tiles() * kTileKeys;
    for (std::int64_t b = sample.first; b < sample.end; ++b)
      for (std::int64_t h = head.first; h < head.end; ++h) {
        const HeadView<T> view(in.heads, b * s.heads + h);
        for (std::int64_t t = tile.first; t < tile.end; ++t) {
          const AttentionTile of{t * kTileQueries, keys};
          in.weigh(block, of, view, shared);
          add(block, shared, of, s.mask.at(b, h, of.queries));
        }
      }
  }

  // Adds the gradients of a tile of scores to the mask of its first query, which is at `at`, and of
  // those after it.
  BELFRY_HD void add(const Block& block, const Shared& shared, const AttentionTile& tile,
                     std::int64_t at) const {
    const AttentionShape& s = in.heads.shape();
    const int masks = s.mask.query_step == 0 ? 1 : kTileQueries;
    const int rows = kTileQueries / masks;  // that share one
    block.each([&](int thread) {
      for (int i = thread; i < masks * kTileKeys; i += block.threads) {
        const int query = i / kTileKeys, key = i % kTileKeys;
        if (tile.queries + query >= s.queries || tile.keys + key >= s.keys) continue;
        T sum = 0;
        for (int r = 0; r < rows; ++r) sum += shared.grads[query + r][key];
        d_mask[at + query * s.mask.query_step + tile.keys + key] += sum;
      }
    });
  }
};

}  // namespace belfry::cuda::by_tiles
