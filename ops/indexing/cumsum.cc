#include "belfry/ops/indexing/cumsum.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/indexing/cumsum_impl.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry {
namespace {

OutputTypes cumsum_shape(const ShapeContext& c) {
  require_arithmetic(c);
  checked_axis(c, c.options<CumSumOptions>().axis, c.input(0).rank());
  return {c.type(0)};
}

std::vector<Output> cumsum_gradient(const Node& node, std::span<const Output> grads) {
  CumSumOptions options = node.options<CumSumOptions>();
  options.reverse = !options.reverse;
  return {cumsum(grads[0], options)};
}

CumSumLines cumsum_lines(const KernelPlan& plan) {
  const auto& [axis, exclusive, reverse] = plan.options<CumSumOptions>();
  const Shape& x = plan.output().shape;
  return {Lines(x, from_end(axis, x.rank())), exclusive, reverse};
}

// Calls scan(lines, x, y, range of lines, range of numbers of their elements) for the range of
// rows. Along dimension 0, a range has a part of all lines.
template <class Scan>
KernelRun cumsum_kernel(const KernelPlan& plan, Scan scan) {
  const CumSumLines in = cumsum_lines(plan);
  const Shape& y = plan.output().shape;
  const bool along_rows = from_end(plan.options<CumSumOptions>().axis, y.rank()) == 0;
  const std::int64_t rows = y[0], lines = rows == 0 ? 0 : in.lines.count() / rows;  // of a row
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [=](const KernelPointers& p) {
      const WorkRange part{p.begin(), p.end()};
      if (along_rows)
        scan(in, p.input<T>(0), p.output<T>(), WorkRange{0, in.lines.count()}, part);
      else
        scan(in, p.input<T>(0), p.output<T>(), WorkRange{part.begin * lines, part.end * lines},
             WorkRange{0, in.lines.n});
    };
  });
}

// Columns [0, columns) of x [n, in.lines.inner], whose sums are side by side.
constexpr std::int64_t kSumsAtOnce = 32;
template <class T>
BELFRY_KERNEL void sum_columns(const CumSumLines& in, const T* x, T* y, std::int64_t columns,
                               WorkRange wanted) {
  CumSumOf<T> before[kSumsAtOnce] = {}, sum[kSumsAtOnce] = {};
  for (std::int64_t i = 0; i < in.lines.n; ++i) {
    if (i % kSumsOfChunk == 0)
      for (std::int64_t c = 0; c < columns; ++c) {
        before[c] += sum[c];
        sum[c] = 0;
      }
    const std::int64_t number = in.reverse ? in.lines.n - 1 - i : i;
    const T* const row = x + number * in.lines.inner;
    T* const sums = y + number * in.lines.inner;
    const bool writes = number >= wanted.begin && number < wanted.end;
    if (writes && in.exclusive)
      for (std::int64_t c = 0; c < columns; ++c) sums[c] = static_cast<T>(before[c] + sum[c]);
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += static_cast<CumSumOf<T>>(row[c]);
    if (writes && !in.exclusive)
      for (std::int64_t c = 0; c < columns; ++c) sums[c] = static_cast<T>(before[c] + sum[c]);
  }
}

// Each addition waits for the one before it, so the sums of several chunks are computed at once.
constexpr int kChunksAtOnce = 4;
template <class T>
struct ChunkSums {
  const T* x[kChunksAtOnce];  // the first elements, in the direction of the scan
  std::int64_t count[kChunksAtOnce];
  CumSumOf<T> sums[kChunksAtOnce][kSumsOfChunk + 1];  // before each element, and of all
};

template <class T>
BELFRY_KERNEL void scan_chunks(ChunkSums<T>& of, std::int64_t step) {
  CumSumOf<T> sum[kChunksAtOnce] = {};
  std::int64_t shortest = kSumsOfChunk;
  for (int c = 0; c < kChunksAtOnce; ++c) {
    of.sums[c][0] = 0;
    shortest = of.count[c] < shortest ? of.count[c] : shortest;
  }
  for (std::int64_t i = 0; i < shortest; ++i)
    for (int c = 0; c < kChunksAtOnce; ++c) {
      sum[c] += static_cast<CumSumOf<T>>(of.x[c][i * step]);
      of.sums[c][i + 1] = sum[c];
    }
  for (int c = 0; c < kChunksAtOnce; ++c)
    for (std::int64_t i = shortest; i < of.count[c]; ++i) {
      sum[c] += static_cast<CumSumOf<T>>(of.x[c][i * step]);
      of.sums[c][i + 1] = sum[c];
    }
}

template <int step, class T>
BELFRY_KERNEL void add_before(CumSumOf<T> before, const CumSumOf<T>* sums, WorkRange range, T* y) {
  for (std::int64_t i = range.begin; i < range.end; ++i)
    y[i * step] = static_cast<T>(before + sums[i]);
}

// Lines whose elements are side by side.
template <class T>
class LineSums {
 public:
  LineSums(const CumSumLines& in, const T* x, T* y, WorkRange wanted)
      : in_(in), x_(x), y_(y), wanted_(wanted) {
    if (in.reverse) wanted_ = {in.lines.n - wanted.end, in.lines.n - wanted.begin};
  }

  // The same chunks of several lines at once, and then several chunks of each line that is left.
  void operator()(WorkRange lines) {
    std::int64_t line = lines.begin;
    for (; line + kChunksAtOnce <= lines.end; line += kChunksAtOnce) {
      CumSumOf<T> before[kChunksAtOnce] = {};
      for (std::int64_t chunk = 0; chunk < in_.chunks(); ++chunk) sum(line, 1, chunk, 0, before);
    }
    for (; line < lines.end; ++line) {
      CumSumOf<T> before = 0;
      for (std::int64_t chunk = 0; chunk < in_.chunks(); chunk += kChunksAtOnce)
        sum(line, 0, chunk, 1, &before);
    }
  }

 private:
  // Chunks (line + c * next_line, chunk + c * next_chunk); before[c * next_line] is the sum of the
  // chunks before it.
  void sum(std::int64_t line, int next_line, std::int64_t chunk, int next_chunk,
           CumSumOf<T>* before) {
    const std::int64_t n = in_.lines.n, step = in_.reverse ? -1 : 1;
    std::int64_t from[kChunksAtOnce], at[kChunksAtOnce];
    for (int c = 0; c < kChunksAtOnce; ++c) {
      from[c] = (chunk + c * next_chunk) * kSumsOfChunk;
      of_.count[c] = std::clamp<std::int64_t>(n - from[c], 0, kSumsOfChunk);
      at[c] = (line + c * next_line) * n + (in_.reverse ? n - 1 - from[c] : from[c]);
      of_.x[c] = x_ + at[c];
    }
    scan_chunks(of_, step);
    for (int c = 0; c < kChunksAtOnce; ++c) {
      const WorkRange range{std::max<std::int64_t>(0, wanted_.begin - from[c]),
                            std::min(of_.count[c], wanted_.end - from[c])};
      CumSumOf<T>& sum = before[c * next_line];
      const CumSumOf<T>* const sums = of_.sums[c] + (in_.exclusive ? 0 : 1);
      if (in_.reverse)
        add_before<-1>(sum, sums, range, y_ + at[c]);
      else
        add_before<1>(sum, sums, range, y_ + at[c]);
      sum += of_.sums[c][of_.count[c]];
    }
  }

  const CumSumLines& in_;
  const T* x_;
  T* y_;
  WorkRange wanted_;  // in the direction of the scan
  ChunkSums<T> of_;
};

KernelRun cumsum_cpu(KernelPlan& plan) {
  return cumsum_kernel(plan, []<class T>(const CumSumLines& in, const T* x, T* y, WorkRange lines,
                                         WorkRange wanted) {
    const std::int64_t inner = in.lines.inner;
    if (inner == 1) return LineSums<T>(in, x, y, wanted)(lines);
    std::int64_t count = 0;  // of columns
    for (std::int64_t line = lines.begin; line < lines.end; line += count) {
      const std::int64_t from = in.lines.first(line);
      count = std::min({kSumsAtOnce, inner - line % inner, lines.end - line});
      sum_columns(in, x + from, y + from, count, wanted);
    }
  });
}

// In one sum, from the first element on.
KernelRun cumsum_reference(KernelPlan& plan) {
  return cumsum_kernel(plan, []<class T>(const CumSumLines& in, const T* x, T* y, WorkRange lines,
                                         WorkRange wanted) {
    for (std::int64_t line = lines.begin; line < lines.end; ++line) {
      CumSumOf<T> sum = 0;
      for (std::int64_t i = 0; i < in.lines.n; ++i) {
        const std::int64_t number = in.reverse ? in.lines.n - 1 - i : i;
        const std::int64_t at = in.lines.first(line) + number * in.lines.inner;
        const CumSumOf<T> next = sum + static_cast<CumSumOf<T>>(x[at]);
        if (number >= wanted.begin && number < wanted.end)
          y[at] = static_cast<T>(in.exclusive ? sum : next);
        sum = next;
      }
    }
  });
}

Sharding cumsum_shards(const ShardContext& c) {
  const std::size_t axis = from_end(c.node.options<CumSumOptions>().axis, c.inputs[0].shape.rank());
  return axis == 0 ? Sharding() : row_shards(c, 1);
}

}  // namespace

const Op kCumSum{.name = "CumSum",
                 .inputs = 1,
                 .shape = cumsum_shape,
                 .gradient = cumsum_gradient,
                 .split = WorkSplit::kRows,
                 .shards = cumsum_shards,
                 .cpu = cumsum_cpu,
                 .reference = cumsum_reference,
                 .autocast = Autocast::kFull};
const StoredOptions<CumSumOptions> kStoredCumSum(kCumSum);

Output cumsum(Output x, CumSumOptions options, At at) {
  return x.graph().add(kCumSum, {x}, at, NodeOptions(options)).output();
}

}  // namespace belfry
