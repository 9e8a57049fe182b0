// All ops of this room, in one source: nvcc takes seven seconds for an op's headers, and a tenth of
// a second for a kernel.
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/sort_indices.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/indexing/cumsum_impl.h"
#include "belfry/ops/indexing/flat_index_impl.h"
#include "belfry/ops/indexing/one_hot.h"
#include "belfry/ops/indexing/ranking_impl.h"
#include "belfry/ops/indexing/segments.h"
#include "belfry/ops/indexing/take.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/combine_rows.cuh"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry::cuda {
namespace {

// Ids that are input `at` of a node, and the error if one is refused.
struct GivenIds {
  GivenIds(const KernelPlan& plan, std::size_t input,
           std::function<void(std::int64_t, std::int64_t)> raise)
      : at(input),
        wide(plan.input(input).dtype == DType::kI64),
        refusal(std::make_shared<const Refusal>(std::move(raise))) {}
  Indices operator()(const KernelPointers& p, KernelQueue& queue) const {
    return {p.input<void>(at), wide, queue.fault(refusal)};
  }

  std::size_t at;
  bool wide;
  std::shared_ptr<const Refusal> refusal;
};

// y[i] = the number of the element that ids [i, dims.count] name.
struct FlatIndexes {
  using Shared = Nothing;
  Indices ids;
  FlatIndexDims dims;
  std::int64_t begin, end;
  std::int64_t* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      std::int64_t flat = 0;
      for (int d = 0; d < dims.count; ++d) {
        const std::int64_t id = ids.below(dims.size[d], i * dims.count + d);
        flat = flat * dims.size[d] + (id < 0 ? 0 : id);
      }
      y[i] = flat;
    });
  }
};

QueueRun flat_index(KernelPlan& plan) {
  const FlatIndexDims dims(plan);
  const GivenIds ids(plan, 1, [dims, &node = plan.node()](std::int64_t element, std::int64_t id) {
    const std::int64_t dimension = element % dims.count;
    refuse_flat_index(node, dimension, id, dims.size[dimension]);
  });
  return [dims, ids](const KernelPointers& p, KernelQueue& queue) {
    launch(queue, FlatIndexes{ids(p, queue), dims, p.begin(), p.end(), p.output<std::int64_t>()},
           grid_for(p.end() - p.begin()));
  };
}

// Elements [begin, end) of [labels, depth].
template <class T>
struct OneHotElements {
  using Shared = Nothing;
  Indices labels;
  std::int64_t depth, begin, end;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      const std::int64_t row = i / depth;
      y[i] = labels.below(depth, row) == i - row * depth ? T(1) : T(0);
    });
  }
};

QueueRun one_hot(KernelPlan& plan) {
  const std::int64_t depth = plan.options<OneHotOptions>().depth;
  const Shape& shape = plan.input(0).shape;
  const std::int64_t of_row = shape.rank() == 0 ? 1 : shape.product(1, shape.rank());
  const GivenIds labels(plan, 0,
                        [depth, of_row, &node = plan.node()](std::int64_t at, std::int64_t label) {
                          kernels::refuse_label(node, at / of_row, label, depth);
                        });
  return visit_any(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [depth, labels](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, OneHotElements<T>{labels(p, queue), depth, p.begin(), p.end(), p.output<T>()},
             grid_for(p.end() - p.begin()));
    };
  });
}

// Rows and their segments.
struct SegmentPlan {
  explicit SegmentPlan(KernelPlan& plan)
      : count(plan.input(1).shape.elements()),
        segments(plan.options<SegmentOptions>().segments),
        ids(plan, 1, [limit = segments, &node = plan.node()](std::int64_t, std::int64_t id) {
          refuse_id(node, id, limit);
        }) {
    const Shape& values = plan.input(0).shape;
    width = values.product(plan.input(1).shape.rank(), values.rank());
    plan.workspace(sort_workspace(count));
  }
  const PlacedIndex* sorted(const KernelPointers& p, KernelQueue& queue) const {
    return sort_indices(queue, ids(p, queue), count, segments, p.workspace());
  }

  std::int64_t count, segments, width;
  GivenIds ids;
};

// Elements [0, count) of y become `value`.
template <class T>
void fill_all(KernelQueue& queue, T value, T* y, std::int64_t count) {
  constexpr auto kSize = static_cast<int>(sizeof(T));
  Pack<std::uint8_t> pattern{};
  for (int i = 0; i < 16; i += kSize) std::memcpy(pattern.at + i, &value, sizeof(T));
  fill_bytes(queue, pattern, y, count * kSize);
}

template <class F>
QueueRun segments(KernelPlan& plan) {
  return visit_numeric(plan.dtype(), [in = SegmentPlan(plan)]<class T>(T) -> QueueRun {
    return [in](const KernelPointers& p, KernelQueue& queue) {
      fill_all(queue, F::template kNone<T>, p.output<T>(), in.segments * in.width);
      launch(queue,
             CombineRows<T, F>{p.input<T>(0), in.sorted(p, queue), 1, 1, in.segments, in.width,
                               in.count, p.output<T>()},
             grid_for(in.count * in.width));
    };
  });
}

// For each id, the threads of its first row count the values that are the largest of their segment,
// and write the share of each value.
template <class T>
struct SegmentShares {
  using Shared = Nothing;
  const T *values, *largest;
  const PlacedIndex* sorted;
  std::int64_t count, segments, width;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i >= count * width) return;
      const std::int64_t first = i / width, column = i - first * width, id = sorted[first].index;
      if (id == segments || (first > 0 && sorted[first - 1].index == id)) return;
      const T best = largest[id * width + column];
      std::int64_t ties = 0, last = first;
      for (; last < count && sorted[last].index == id; ++last)
        ties += values[sorted[last].position * width + column] == best ? 1 : 0;
      const T share = T(1) / static_cast<T>(ties);
      for (std::int64_t k = first; k < last; ++k) {
        const std::int64_t at = sorted[k].position * width + column;
        y[at] = share * (values[at] == best ? T(1) : T(0));
      }
    });
  }
};

QueueRun segment_shares(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [in = SegmentPlan(plan)]<class T>(T) -> QueueRun {
    return [in](const KernelPointers& p, KernelQueue& queue) {
      launch(queue,
             SegmentShares<T>{p.input<T>(0), p.input<T>(2), in.sorted(p, queue), in.count,
                              in.segments, in.width, p.output<T>()},
             grid_for(in.count * in.width));
    };
  });
}

// The places of the first k elements in the order of each line, which a block takes. In each round
// it finds the first of those that come after the last one found.
template <class T>
struct BestOfLines {
  static constexpr int kThreads = 128;
  struct Shared {
    std::int64_t best[kThreads];
    std::int64_t last;
  };
  const T* x;
  RankedLines in;
  std::int64_t* places;

  BELFRY_HD bool before(const T* line, std::int64_t i, std::int64_t j) const {
    const std::int64_t step = in.lines.inner;
    return in.order.before(line[i * step], i, line[j * step], j);
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const T* const line = x + in.lines.first(block.index);
    for (std::int64_t round = 0; round < in.k; ++round) {
      block.each([&](int thread) {
        std::int64_t best = -1;
        for (std::int64_t i = thread; i < in.lines.n; i += kThreads) {
          const bool open = round == 0 || before(line, shared.last, i);
          if (open && (best < 0 || before(line, i, best))) best = i;
        }
        shared.best[thread] = best;
      });
      block.each([&](int thread) {
        if (thread > 0) return;
        std::int64_t best = -1;
        for (int t = 0; t < kThreads; ++t) {
          const std::int64_t other = shared.best[t];
          if (other >= 0 && (best < 0 || before(line, other, best))) best = other;
        }
        shared.last = best;
        places[block.index * in.k + round] = best;
      });
    }
  }
};

QueueRun best_of_lines(KernelPlan& plan) {
  return visit_numeric(plan.input(0).dtype, [in = RankedLines(plan)]<class T>(T) -> QueueRun {
    return [in](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, BestOfLines<T>{p.input<T>(0), in, p.output<std::int64_t>()},
             {.blocks = in.k == 0 ? 0 : in.lines.count(), .threads = BestOfLines<T>::kThreads});
    };
  });
}

// Adds up the chunks of lines. The first pass sums each chunk into `before`, the second replaces
// these sums by those of all chunks before, and the third writes y.
template <class T>
struct CumSumPass {
  using Shared = Nothing;
  enum Pass { kSumChunks, kSumBefore, kWrite };
  Pass pass;
  CumSumLines in;
  const T* x;
  CumSumOf<T>* before;  // [chunks, lines]
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread, lines = in.lines.count();
      const std::int64_t line = i % lines, chunk = i / lines;
      if (pass == kSumBefore) {
        if (i >= lines) return;
        CumSumOf<T> sum = 0;
        for (std::int64_t k = line; k < in.chunks() * lines; k += lines) {
          const CumSumOf<T> next = before[k];
          before[k] = sum;
          sum += next;
        }
        return;
      }
      if (i >= in.chunks() * lines) return;
      if (pass == kSumChunks)
        before[i] = in.scan(x, line, chunk, CumSumOf<T>(0), [](auto, auto, T) {});
      else
        in.scan(x, line, chunk, before[i],
                [&](std::int64_t at, std::int64_t, T sum) { y[at] = sum; });
    });
  }
};

QueueRun cumsum(KernelPlan& plan) {
  const auto& [axis, exclusive, reverse] = plan.options<CumSumOptions>();
  const Shape& x = plan.output().shape;
  const CumSumLines in{Lines(x, from_end(axis, x.rank())), exclusive, reverse};
  plan.workspace(in.chunks() * in.lines.count() * static_cast<std::int64_t>(sizeof(double)));
  return visit_numeric(plan.dtype(), [in]<class T>(T) -> QueueRun {
    return [in](const KernelPointers& p, KernelQueue& queue) {
      using Pass = CumSumPass<T>;
      const std::int64_t lines = in.lines.count(), chunks = in.chunks() * lines;
      Pass pass{Pass::kSumChunks, in, p.input<T>(0), reinterpret_cast<CumSumOf<T>*>(p.workspace()),
                p.output<T>()};
      launch(queue, pass, grid_for(chunks));
      pass.pass = Pass::kSumBefore;
      launch(queue, pass, chunks == 0 ? Grid{.blocks = 0} : grid_for(lines));
      pass.pass = Pass::kWrite;
      launch(queue, pass, grid_for(chunks));
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kFlatIndex, flat_index},
    {kOneHot, one_hot},
    {kSegmentSum, segments<kernels::AddRows>},
    {kSegmentMax, segments<kernels::LargestRows>},
    {kSegmentShares, segment_shares},
    {kTopK, best_of_lines},
    {kArgMax, best_of_lines},
    {kArgMin, best_of_lines},
    {kCumSum, cumsum},
};

}  // namespace
}  // namespace belfry::cuda
