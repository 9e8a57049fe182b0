// Kernels of attention by products (by_products.cuh), except the products: they move heads apart,
// and turn a block of scores into weights and gradients.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "belfry/framework/base/shape.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/sight.cuh"

namespace belfry::cuda::by_products {

constexpr std::int64_t kQueries = 128;  // of a block of queries
constexpr int kLanes = 16;              // threads that share a row
constexpr int kRows = 8;                // rows of a block of threads

// The heads of a tensor [batch, time, step], of which they are columns: heads / group * head_dim.
// Apart they are [batch * heads, time, columns]: `group` heads in a row are copies of one.
struct HeadRows {
  std::int64_t batch, time, heads, columns, group, step;

  BELFRY_HD std::int64_t elements() const { return batch * heads * time * columns; }
  // The offset, with heads side by side, of the row that is head * time + t with heads apart.
  BELFRY_HD std::int64_t beside(std::int64_t row) const {
    const std::int64_t head = row / time;
    return (head / heads * time + row % time) * step + head % heads / group * columns;
  }
};

inline HeadRows rows_of_queries(const AttentionShape& s) {
  return {s.batch, s.queries, s.heads, s.head_dim, 1, s.q_step()};
}
inline HeadRows rows_of_results(const AttentionShape& s) {
  return {s.batch, s.queries, s.heads, s.head_dim, 1, s.y_step()};
}
inline HeadRows rows_of_keys(const AttentionShape& s) {
  return {s.batch, s.keys, s.heads, s.head_dim, s.group(), s.kv_step()};
}

// Moves heads apart, or side by side again, W elements per thread; 1 where types differ.
template <class From, class To, int W, bool kApart>
struct MoveHeads {
  using Shared = Nothing;
  HeadRows heads;
  const From* from;
  To* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = (block.index * block.threads + thread) * W;
      if (i >= heads.elements()) return;
      const std::int64_t there = heads.beside(i / heads.columns) + i % heads.columns;
      const From* const in = from + (kApart ? there : i);
      To* const out = to + (kApart ? i : there);
      if constexpr (std::is_same_v<From, To>)
        Lanes<From, W>::load(in).store(out);
      else
        *out = Stored<To>::narrow(Stored<From>::widen(*in));
    });
  }
};

template <bool kApart, class From, class To>
void move_heads(KernelQueue& queue, const HeadRows& heads, const From* from, To* to) {
  const auto move = [&]<int W>(std::integral_constant<int, W>) {
    launch(queue, MoveHeads<From, To, W, kApart>{heads, from, to}, grid_for(heads.elements() / W));
  };
  if constexpr (std::is_same_v<From, To>)
    visit_lanes<To>(heads.columns, {from, to}, move);
  else
    move(std::integral_constant<int, 1>());
}

// Adds up the heads of each group, which are apart, and moves the sums side by side. One element
// per thread.
template <class To>
struct SumGroups {
  using Shared = Nothing;
  HeadRows heads;
  const float* from;
  To* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= heads.elements() / heads.group) return;
      const std::int64_t row = i / heads.columns, c = i % heads.columns;  // of groups apart
      const std::int64_t first = row / heads.time * heads.group * heads.time + row % heads.time;
      float sum = 0;
      for (std::int64_t g = 0; g < heads.group; ++g)
        sum += from[(first + g * heads.time) * heads.columns + c];
      to[heads.beside(first) + c] = Stored<To>::narrow(sum);
    });
  }
};

template <class To>
void sum_groups(KernelQueue& queue, const HeadRows& heads, const float* from, To* to) {
  if (heads.group == 1)
    move_heads<false>(queue, heads, from, to);
  else
    launch(queue, SumGroups<To>{heads, from, to}, grid_for(heads.elements() / heads.group));
}

// A block of queries of all heads, and the keys that it sees. Its matrices have a row per query,
// one head after another.
struct QueryBlock {
  std::int64_t first, rows, keys, leading;  // leading: elements from row to row, a multiple of 8

  Grid grid(std::int64_t heads) const {
    return {.blocks = (heads * rows + kRows - 1) / kRows, .threads = kRows * kLanes};
  }
};

// The last block has all keys.
inline std::vector<QueryBlock> query_blocks(const AttentionShape& shape) {
  std::vector<QueryBlock> blocks;
  for (std::int64_t first = 0; first < shape.queries; first += kQueries) {
    const std::int64_t rows = std::min(kQueries, shape.queries - first);
    const bool some = shape.causal && first + rows < shape.queries;
    const std::int64_t keys = some ? std::min(first + rows, shape.keys) : shape.keys;
    blocks.push_back({first, rows, keys, (keys + 7) / 8 * 8});
  }
  return blocks;
}

// A thread's part of a row of a QueryBlock.
template <class E>
struct RowLane {
  BELFRY_HD RowLane(const Block& block, int thread, const QueryBlock& block_of,
                    const Sight<E>& sight_of)
      : sight(sight_of),
        of(block_of),
        row(block.index * kRows + thread / kLanes),
        lane(thread % kLanes),
        group(thread - lane),
        head(row / of.rows),
        query(of.first + row % of.rows),
        at(row * of.leading),
        all(head * sight.shape.queries + query) {}

  BELFRY_HD bool exists() const { return row < sight.shape.batch * sight.shape.heads * of.rows; }
  // Calls f(s, added to the score) for this thread's keys, one in kLanes, that the query sees, and
  // hidden(s) for those of the block that it does not.
  template <class F, class Hidden>
  BELFRY_HD void each_key(const F& f, const Hidden& hidden) const {
    const std::int64_t heads = sight.shape.heads, sample = head / heads, keys = sight.keys(sample);
    for (std::int64_t s = lane; s < of.keys; s += kLanes) {
      const auto look = sight.look(sample, head % heads, query, s, keys);
      if (look.seen)
        f(s, look.added);
      else
        hidden(s);
    }
  }
  template <class F>
  BELFRY_HD void each_seen(const F& f) const {
    each_key(f, [](std::int64_t) {});
  }

  const Sight<E>& sight;
  const QueryBlock& of;
  std::int64_t row;
  int lane, group;           // group: the first thread of the row
  std::int64_t head, query;  // head: through the batch; query: its time
  std::int64_t at, all;      // the row's first score; the row's number among all times
};

struct LaneShared {
  float largest[kRows * kLanes], sums[kRows * kLanes];

  // The largest over the lanes of the row whose first thread is `group`.
  BELFRY_HD float largest_of(int group) const {
    float result = largest[group];
    for (int i = 1; i < kLanes; ++i) result = larger(result, largest[group + i]);
    return result;
  }
  BELFRY_HD float sum_of(int group) const {
    float result = sums[group];
    for (int i = 1; i < kLanes; ++i) result += sums[group + i];
    return result;
  }
  BELFRY_HD static float larger(float a, float b) { return a > b ? a : b; }
};

// Computes the weights of scores, zero for keys that are not seen, and the logarithms of their
// sums. `weights` may be `scores` if both are of one type.
template <class T>
struct WeighQueries {
  using Shared = LaneShared;
  Sight<T> sight;
  QueryBlock of;
  float scale;
  const float* scores;
  T* weights;
  float* log_sums;

  BELFRY_HD static float shift(float largest) {
    return largest == -math::Format<float>::kInfinity ? 0 : largest;
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const auto each_row = [&](const auto& f) {
      block.each([&](int thread) {
        const RowLane<T> row(block, thread, of, sight);
        if (row.exists()) f(thread, row);
      });
    };
    each_row([&](int thread, const RowLane<T>& row) {
      float largest = -math::Format<float>::kInfinity;
      row.each_seen([&](std::int64_t s, float added) {
        largest = Shared::larger(largest, scores[row.at + s] * scale + added);
      });
      shared.largest[thread] = largest;
    });
    each_row([&](int thread, const RowLane<T>& row) {
      const float base = shift(shared.largest_of(row.group));
      float sum = 0;
      row.each_seen([&](std::int64_t s, float added) {
        sum += math::exp(scores[row.at + s] * scale + added - base);
      });
      shared.sums[thread] = sum;
    });
    each_row([&](int, const RowLane<T>& row) {
      const float largest = shared.largest_of(row.group), sum = shared.sum_of(row.group);
      row.each_key(
          [&](std::int64_t s, float added) {
            const float score = scores[row.at + s] * scale + added;
            weights[row.at + s] = Stored<T>::narrow(math::exp(score - shift(largest)) / sum);
          },
          [&](std::int64_t s) { weights[row.at + s] = Stored<T>::narrow(0); });
      if (row.lane == 0) log_sums[row.all] = largest + math::log(sum);
    });
  }
};

// Computes the products of rows of y and dy, with heads side by side.
template <class T>
struct RowProducts {
  using Shared = LaneShared;
  HeadRows heads;
  const T *y, *dy;
  float* products;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t rows = heads.batch * heads.heads * heads.time;
    block.each([&](int thread) {
      const std::int64_t row = block.index * kRows + thread / kLanes;
      if (row >= rows) return;
      const std::int64_t at = heads.beside(row);
      float sum = 0;
      for (std::int64_t c = thread % kLanes; c < heads.columns; c += kLanes)
        sum += Stored<T>::widen(y[at + c]) * Stored<T>::widen(dy[at + c]);
      shared.sums[thread] = sum;
    });
    block.each([&](int thread) {
      const std::int64_t row = block.index * kRows + thread / kLanes;
      if (row < rows && thread % kLanes == 0) products[row] = shared.sum_of(thread);
    });
  }
};

// The scores of a block of queries and the gradients of their weights, and what the forward pass
// found about its queries.
struct ScoreInputs {
  const float *scores, *grads, *log_sums, *products;
  float scale;

  // The weight of element i, of query `row` among all, and the gradient of the scaled score.
  BELFRY_HD float weight(std::int64_t i, std::int64_t row, float added) const {
    return math::exp(scores[i] * scale + added - log_sums[row]);
  }
  BELFRY_HD float grad(std::int64_t i, std::int64_t row, float weight) const {
    return weight * (grads[i] - products[row]);
  }
};

// Turns scores and the gradients of weights into the weights, and the gradients of scores times the
// scale. An output may overwrite its input of the same type.
template <class T>
struct ScoreGradients {
  using Shared = Nothing;
  Sight<T> sight;
  QueryBlock of;
  ScoreInputs in;
  T *weights, *score_grads;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const RowLane<T> row(block, thread, of, sight);
      if (!row.exists()) return;
      row.each_key(
          [&](std::int64_t s, float added) {
            const std::int64_t i = row.at + s;
            const float weight = in.weight(i, row.all, added);
            const float grad = in.grad(i, row.all, weight) * in.scale;
            weights[i] = Stored<T>::narrow(weight);
            score_grads[i] = Stored<T>::narrow(grad);
          },
          [&](std::int64_t s) {
            weights[row.at + s] = Stored<T>::narrow(0);
            score_grads[row.at + s] = Stored<T>::narrow(0);
          });
    });
  }
};

// Adds the gradients of the scores of a block of queries to that of the mask: an element of the
// mask per thread, which adds in the order of samples, heads and queries.
template <class T>
struct AddToMask {
  using Shared = Nothing;
  Sight<T> sight;
  QueryBlock of;
  ScoreInputs in;
  float* d_mask;

  BELFRY_HD std::int64_t elements() const {
    const auto& s = sight.shape;
    return MaskPart::count(s.mask.sample_step, s.batch) *
           MaskPart::count(s.mask.head_step, s.heads) *
           MaskPart::count(s.mask.query_step, of.rows) * of.keys;
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= elements()) return;
      const auto& s = sight.shape;
      const std::int64_t rows = MaskPart::count(s.mask.query_step, of.rows),
                         heads = MaskPart::count(s.mask.head_step, s.heads), key = i % of.keys;
      const MaskPart row(s.mask.query_step, of.rows, i / of.keys % rows),
          head(s.mask.head_step, s.heads, i / of.keys / rows % heads),
          sample(s.mask.sample_step, s.batch, i / of.keys / rows / heads);
      float sum = 0;
      for (std::int64_t b = sample.first; b < sample.end; ++b)
        for (std::int64_t h = head.first; h < head.end; ++h)
          for (std::int64_t r = row.first; r < row.end; ++r) sum += term(b, h, r, key);
      d_mask[s.mask.at(sample.first, head.first, of.first + row.first) + key] += sum;
    });
  }

  BELFRY_HD float term(std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t key) const {
    const auto& s = sight.shape;
    const auto look = sight.look(b, h, of.first + r, key, sight.keys(b));
    if (!look.seen) return 0;
    const std::int64_t number = b * s.heads + h, i = (number * of.rows + r) * of.leading + key,
                       row = number * s.queries + of.first + r;
    return in.grad(i, row, in.weight(i, row, look.added));
  }
};

}  // namespace belfry::cuda::by_products
