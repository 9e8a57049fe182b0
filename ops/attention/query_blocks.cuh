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

namespace belfry::cuda::by_products {

constexpr std::int64_t kQueries = 128;  // of a block of queries
constexpr int kLanes = 16;              // threads that share a row
constexpr int kRows = 8;                // rows of a block of threads

struct HeadSizes {
  // q is [batch, time, heads * head_dim]. Scores are multiplied by `by`.
  HeadSizes(const Shape& q, int of, double by)
      : batch(q[0]), time(q[1]), heads(of), columns(q[2] / of), scale(static_cast<float>(by)) {}

  BELFRY_HD std::int64_t count() const { return batch * heads; }
  BELFRY_HD std::int64_t elements() const { return count() * time * columns; }
  // The offset, with heads side by side, of the row that is head * time + t with heads apart.
  BELFRY_HD std::int64_t beside(std::int64_t row) const {
    const std::int64_t head = row / time;
    return (head / heads * time + row % time) * heads * columns + head % heads * columns;
  }

  std::int64_t batch, time, heads, columns;
  float scale;
};

// Moves heads apart, or side by side again, W elements per thread; 1 where types differ.
template <class From, class To, int W, bool kApart>
struct MoveHeads {
  using Shared = Nothing;
  HeadSizes heads;
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
void move_heads(KernelQueue& queue, const HeadSizes& heads, const From* from, To* to) {
  const auto move = [&]<int W>(std::integral_constant<int, W>) {
    launch(queue, MoveHeads<From, To, W, kApart>{heads, from, to}, grid_for(heads.elements() / W));
  };
  if constexpr (std::is_same_v<From, To>)
    visit_lanes<To>(heads.columns, {from, to}, move);
  else
    move(std::integral_constant<int, 1>());
}

// A block of queries of all heads, and the keys that it sees. Its matrices have a row per query,
// one head after another.
struct QueryBlock {
  std::int64_t first, rows, keys, leading;  // leading: elements from row to row, a multiple of 8

  Grid grid(std::int64_t heads) const {
    return {.blocks = (heads * rows + kRows - 1) / kRows, .threads = kRows * kLanes};
  }
};

inline std::vector<QueryBlock> query_blocks(std::int64_t time) {
  std::vector<QueryBlock> blocks;
  for (std::int64_t first = 0; first < time; first += kQueries) {
    const std::int64_t rows = std::min(kQueries, time - first), keys = first + rows;
    blocks.push_back({first, rows, keys, (keys + 7) / 8 * 8});
  }
  return blocks;
}

// A thread's part of a row of a QueryBlock.
struct RowLane {
  BELFRY_HD RowLane(const Block& block, int thread, const QueryBlock& of, std::int64_t time)
      : row(block.index * kRows + thread / kLanes),
        lane(thread % kLanes),
        group(thread - lane),
        query(of.first + row % of.rows),
        at(row * of.leading),
        all(row / of.rows * time + query) {}

  // Calls f(s) for this thread's keys up to the query: one in kLanes.
  template <class F>
  BELFRY_HD void each_seen(const F& f) const {
    for (std::int64_t s = lane; s <= query; s += kLanes) f(s);
  }

  std::int64_t row;
  int lane, group;       // group: the first thread of the row
  std::int64_t query;    // its time
  std::int64_t at, all;  // the row's first score; the row's number among all times
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

// Computes the weights of scores, zero for keys after the query, and the logarithms of their sums.
// `weights` may be `scores` if both are of one type.
template <class T>
struct WeighQueries {
  using Shared = LaneShared;
  HeadSizes heads;
  QueryBlock of;
  const float* scores;
  T* weights;
  float* log_sums;

  BELFRY_HD static float shift(float largest) {
    return largest == -math::Format<float>::kInfinity ? 0 : largest;
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t rows = heads.count() * of.rows;
    const auto each_row = [&](const auto& f) {
      block.each([&](int thread) {
        const RowLane row(block, thread, of, heads.time);
        if (row.row < rows) f(thread, row);
      });
    };
    each_row([&](int thread, const RowLane& row) {
      float largest = -math::Format<float>::kInfinity;
      row.each_seen([&](std::int64_t s) {
        largest = Shared::larger(largest, scores[row.at + s] * heads.scale);
      });
      shared.largest[thread] = largest;
    });
    each_row([&](int thread, const RowLane& row) {
      const float base = shift(shared.largest_of(row.group));
      float sum = 0;
      row.each_seen(
          [&](std::int64_t s) { sum += math::exp(scores[row.at + s] * heads.scale - base); });
      shared.sums[thread] = sum;
    });
    each_row([&](int, const RowLane& row) {
      const float largest = shared.largest_of(row.group), sum = shared.sum_of(row.group);
      row.each_seen([&](std::int64_t s) {
        const float weight = math::exp(scores[row.at + s] * heads.scale - shift(largest)) / sum;
        weights[row.at + s] = Stored<T>::narrow(weight);
      });
      zero_behind(row, of.keys, weights);
      if (row.lane == 0) log_sums[row.all] = largest + math::log(sum);
    });
  }

  BELFRY_HD static void zero_behind(const RowLane& row, std::int64_t keys, T* of_row) {
    const std::int64_t steps = row.query < row.lane ? 0 : (row.query - row.lane) / kLanes + 1;
    for (std::int64_t s = row.lane + steps * kLanes; s < keys; s += kLanes)
      of_row[row.at + s] = Stored<T>::narrow(0);
  }
};

// Computes the products of rows of y and dy, with heads side by side.
template <class T>
struct RowProducts {
  using Shared = LaneShared;
  HeadSizes heads;
  const T *y, *dy;
  float* products;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t rows = heads.count() * heads.time;
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

// Turns scores and the gradients of weights into the weights, and the gradients of scores times the
// scale. An output may overwrite its input of the same type.
template <class T>
struct ScoreGradients {
  using Shared = Nothing;
  HeadSizes heads;
  QueryBlock of;
  const float *scores, *grads, *log_sums, *products;
  T *weights, *score_grads;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const RowLane row(block, thread, of, heads.time);
      if (row.row >= heads.count() * of.rows) return;
      row.each_seen([&](std::int64_t s) {
        const std::int64_t i = row.at + s;
        const float weight = math::exp(scores[i] * heads.scale - log_sums[row.all]);
        const float grad = weight * (grads[i] - products[row.all]) * heads.scale;
        weights[i] = Stored<T>::narrow(weight);
        score_grads[i] = Stored<T>::narrow(grad);
      });
      WeighQueries<T>::zero_behind(row, of.keys, weights);
      WeighQueries<T>::zero_behind(row, of.keys, score_grads);
    });
  }
};

}  // namespace belfry::cuda::by_products
