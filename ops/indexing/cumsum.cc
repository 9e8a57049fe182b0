#include "belfry/ops/indexing/cumsum.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
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

// Calls scan(x, y, line, first, last) for the lines of the range of rows, which holds the elements
// with numbers [first, last) of each. Along dimension 0, a range has a part of all lines.
template <class Scan>
KernelRun cumsum_kernel(const KernelPlan& plan, Scan scan) {
  const CumSumLines in = cumsum_lines(plan);
  const Shape& y = plan.output().shape;
  const bool along_rows = from_end(plan.options<CumSumOptions>().axis, y.rank()) == 0;
  const std::int64_t rows = y[0], lines = rows == 0 ? 0 : in.lines.count() / rows;  // of a row
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [=](const KernelPointers& p) {
      const std::int64_t begin = along_rows ? 0 : p.begin() * lines;
      const std::int64_t end = along_rows ? in.lines.count() : p.end() * lines;
      for (std::int64_t line = begin; line < end; ++line)
        scan(in, p.input<T>(0), p.output<T>(), line, along_rows ? p.begin() : 0,
             along_rows ? p.end() : in.lines.n);
    };
  });
}

// Columns [0, columns) of x [n, in.lines.inner], whose sums are side by side.
constexpr std::int64_t kSumsAtOnce = 32;
template <class T>
BELFRY_KERNEL void sum_columns(const CumSumLines& in, const T* x, T* y, std::int64_t columns,
                               std::int64_t first, std::int64_t last) {
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
    const bool wanted = number >= first && number < last;
    if (wanted && in.exclusive)
      for (std::int64_t c = 0; c < columns; ++c) sums[c] = static_cast<T>(before[c] + sum[c]);
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += static_cast<CumSumOf<T>>(row[c]);
    if (wanted && !in.exclusive)
      for (std::int64_t c = 0; c < columns; ++c) sums[c] = static_cast<T>(before[c] + sum[c]);
  }
}

template <class T>
void sum_line(const CumSumLines& in, const T* x, T* y, std::int64_t line, std::int64_t first,
              std::int64_t last) {
  CumSumOf<T> before = 0;
  for (std::int64_t chunk = 0; chunk < in.chunks(); ++chunk)
    before += in.scan(x, line, chunk, before, [&](std::int64_t at, std::int64_t number, T sum) {
      if (number >= first && number < last) y[at] = sum;
    });
}

// The first of the lines side by side computes them all.
KernelRun cumsum_cpu(KernelPlan& plan) {
  return cumsum_kernel(plan, []<class T>(const CumSumLines& in, const T* x, T* y, std::int64_t line,
                                         std::int64_t first, std::int64_t last) {
    const std::int64_t inner = in.lines.inner, column = line % inner, from = in.lines.first(line);
    if (inner == 1)
      sum_line(in, x, y, line, first, last);
    else if (column % kSumsAtOnce == 0)
      sum_columns(in, x + from, y + from, std::min(kSumsAtOnce, inner - column), first, last);
  });
}

// In one sum, from the first element on.
KernelRun cumsum_reference(KernelPlan& plan) {
  return cumsum_kernel(plan, []<class T>(const CumSumLines& in, const T* x, T* y, std::int64_t line,
                                         std::int64_t first, std::int64_t last) {
    CumSumOf<T> sum = 0;
    for (std::int64_t i = 0; i < in.lines.n; ++i) {
      const std::int64_t number = in.reverse ? in.lines.n - 1 - i : i;
      const std::int64_t at = in.lines.first(line) + number * in.lines.inner;
      const CumSumOf<T> next = sum + static_cast<CumSumOf<T>>(x[at]);
      if (number >= first && number < last) y[at] = static_cast<T>(in.exclusive ? sum : next);
      sum = next;
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

Output cumsum(Output x, CumSumOptions options, At at) {
  return x.graph().add(kCumSum, {x}, at, NodeOptions(options)).output();
}

}  // namespace belfry
