// Sums and extremes over axes, of ops/reduce.cc, ops/reduce_max.cc and SumTo, with the same bits as
// on hosts.
#include "belfry/framework/cuda/kernels/column_tree.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/extremes.h"
#include "belfry/ops/kernels/lines.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/kernels/reduction.h"
#include "belfry/ops/reduce_max.h"
#include "belfry/ops/sum_to.h"

namespace belfry::cuda {
namespace {

using kernels::Add;

// Integers are summed as unsigned ones, which wrap.
template <class T>
using Summed = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                           std::type_identity<T>>::type;

// F16 and BF16 are summed in f32 and rounded once.
template <class Y>
BELFRY_HD Y result_of(Wide<Y> sum, bool mean, Wide<Y> count) {
  if constexpr (std::is_floating_point_v<Wide<Y>>)
    if (mean) sum /= count;
  return Stored<Y>::narrow(sum);
}

// The operator of sums.
struct AddTerms : Add {
  static constexpr bool kSums = true;
};
template <class F>
struct Extreme : F {
  static constexpr bool kSums = false;
};

// y[row, part] = the fold of elements [part * kPart, ..) of a row: partial sums if rows have
// several parts.
template <class F, class X, class Y>
struct RowFold {
  static constexpr std::int64_t kPart = 16 * kChunk;
  using Shared = FoldShared<Wide<X>>;
  const X* x;
  std::int64_t columns, parts;
  Y* y;
  bool mean;
  Wide<X> count;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t row = block.index / parts, begin = block.index % parts * kPart;
    const std::int64_t end = begin + kPart < columns ? begin + kPart : columns;
    const X* const from = x + row * columns;
    fold(block, shared, F{}, begin, end, [&](std::int64_t i) { return Stored<X>::widen(from[i]); });
    block.each([&](int thread) {
      if (thread == 0) y[block.index] = result_of<Y>(shared.total, mean, count);
    });
  }
};

// x is [outer, rows, columns]. A leaf is 8 rows of terms, or one row of partial sums.
template <class F, class X, class Y>
struct SumLeaf {
  using Value = Wide<X>;
  const X* x;
  std::int64_t rows, columns, groups;
  bool partial;
  Y* y;
  bool mean;
  Value count;

  BELFRY_HD static Value neutral() { return F::template kNeutral<Value>; }
  BELFRY_HD static Value combine(Value a, Value b) { return F{}(a, b); }
  BELFRY_HD Value operator()(std::int64_t outer, std::int64_t leaf, std::int64_t column) const {
    const X* const from = x + outer * rows * columns + column;
    if (partial) return Stored<X>::widen(from[leaf * columns]);
    Value term[8];
    for (int k = 0; k < 8; ++k)
      term[k] = leaf * 8 + k < rows ? Stored<X>::widen(from[(leaf * 8 + k) * columns]) : neutral();
    return kernels::fold8(F{}, term[0], term[1], term[2], term[3], term[4], term[5], term[6],
                          term[7]);
  }
  BELFRY_HD void finish(std::int64_t outer, std::int64_t group, std::int64_t column,
                        Value total) const {
    y[(outer * groups + group) * columns + column] = result_of<Y>(total, mean, count);
  }
};

// The sums, means or extremes of a tensor, step by step.
template <class F>
class Sums {
 public:
  Sums(KernelPlan& plan, const std::vector<bool>& reduced, bool mean)
      : steps_(Reduction(plan.input(0).shape, reduced).steps()), mean_(mean) {
    const Shape& x = plan.input(0).shape;
    for (std::size_t axis = 0; axis < x.rank(); ++axis)
      if (reduced[axis]) count_ *= static_cast<double>(x[axis]);
    if (steps_.empty()) steps_ = {{1, 1, x.elements(), 0}};  // each element is its sum
    std::int64_t elements = 0;  // results of all steps but the last, then partial sums of one
    for (std::size_t i = 0; i + 1 < steps_.size(); ++i) {
      steps_[i].to = elements;
      elements += aligned(steps_[i].outer * steps_[i].inner);
    }
    partial_ = elements;
    std::int64_t most = 0;
    for (const Reduction::Step& step : steps_)
      if (const std::int64_t n = parts(step); n > 1)
        most = std::max(most, step.outer * step.inner * n);
    const std::size_t element = is_half(plan.dtype()) ? sizeof(float) : size_of(plan.dtype());
    plan.workspace((partial_ + most) * static_cast<std::int64_t>(element));
  }

  // X is the type of the tensors.
  template <class X>
  void run(const KernelPointers& p, KernelQueue& queue) const {
    auto* const scratch = reinterpret_cast<Wide<X>*>(p.workspace());
    const auto count = static_cast<Wide<X>>(count_);
    const auto step_to = [&](const Reduction::Step& step, const auto* x) -> const Wide<X>* {
      if (&step == &steps_.back()) {
        sum(queue, step, x, p.output<X>(), scratch + partial_, mean_, count);
        return nullptr;
      }
      sum(queue, step, x, scratch + step.to, scratch + partial_, false, count);
      return scratch + step.to;
    };
    const Wide<X>* between = step_to(steps_.front(), p.input<X>(0));
    for (std::size_t i = 1; i < steps_.size(); ++i) between = step_to(steps_[i], between);
  }

 private:
  static std::int64_t aligned(std::int64_t elements) { return (elements + 15) / 16 * 16; }
  static std::int64_t leaves(const Reduction::Step& step) { return (step.reduced + 7) / 8; }

  // The number of partial sums of each result.
  static std::int64_t parts(const Reduction::Step& step) {
    if (step.inner != 1) return LeafGroups(leaves(step)).groups;
    const std::int64_t part = RowFold<F, float, float>::kPart;
    return step.reduced <= part ? 1 : (step.reduced + part - 1) / part;
  }

  template <class X, class Y>
  static void sum(KernelQueue& queue, const Reduction::Step& step, const X* x, Y* y,
                  Wide<X>* partial, bool mean, Wide<X> count) {
    const std::int64_t n = parts(step);
    if (n == 1) return sum_parts(queue, step, x, y, mean, count);
    sum_parts(queue, step, x, partial, false, count);
    LeafGroups one(1);
    one.per_group = n;
    column_tree(queue, SumLeaf<F, Wide<X>, Y>{partial, n, step.inner, 1, true, y, mean, count},
                step.outer, n, step.inner, one);
  }
  // Computes parts(step) sums of each result.
  template <class X, class Y>
  static void sum_parts(KernelQueue& queue, const Reduction::Step& step, const X* x, Y* y,
                        bool mean, Wide<X> count) {
    const auto [outer, reduced, inner, unused] = step;
    const std::int64_t n = parts(step);
    if (inner == 1)
      launch(queue, RowFold<F, X, Y>{x, reduced, n, y, mean, count},
             {.blocks = outer * n, .threads = kFoldThreads});
    else
      column_tree(queue, SumLeaf<F, X, Y>{x, reduced, inner, n, false, y, mean, count}, outer,
                  leaves(step), inner, LeafGroups(leaves(step)));
  }

  std::vector<Reduction::Step> steps_;
  bool mean_;
  double count_ = 1;
  std::int64_t partial_ = 0;
};

template <class F>
QueueRun folds(KernelPlan& plan, const std::vector<bool>& reduced, bool mean) {
  return kernels::visit_half_or(
      plan.dtype(), [](DType dtype, const auto& f) { return visit_numeric(dtype, f); },
      [folds = Sums<F>(plan, reduced, mean)]<class X>(X) -> QueueRun {
        using Term = std::conditional_t<F::kSums, Summed<X>, X>;
        return [folds](const KernelPointers& p, KernelQueue& queue) {
          folds.template run<Term>(p, queue);
        };
      });
}

std::vector<bool> reduced_axes(const KernelPlan& plan) {
  return axis_mask(plan.options<ReductionOptions>().axes, plan.input(0).shape.rank());
}

template <bool mean>
QueueRun reduce(KernelPlan& plan) {
  return folds<AddTerms>(plan, reduced_axes(plan), mean);
}

template <class F>
QueueRun extreme(KernelPlan& plan) {
  return folds<Extreme<F>>(plan, reduced_axes(plan), false);
}

QueueRun sum_to(KernelPlan& plan) {
  return folds<AddTerms>(plan, repeated_axes(plan.input(0).shape, plan.output().shape), false);
}

// The lines of x along reduced axes, with their extremes y. A block takes a line, or each thread
// takes one if lines are not dense.
template <class T>
struct TiedLines {
  Lines lines;
  const T *x, *y;

  bool dense() const { return lines.inner == 1; }
  Grid grid() const {
    return dense() ? Grid{lines.count(), kFoldThreads} : grid_for(lines.count(), kFoldThreads);
  }
  BELFRY_HD std::int64_t line(const Block& block, int thread) const {
    return lines.inner == 1 ? block.index : block.index * block.threads + thread;
  }
  // Calls f(element) for every step-th element of a line, from `from`.
  template <class F>
  BELFRY_HD void each(std::int64_t line, std::int64_t from, std::int64_t step, const F& f) const {
    const std::int64_t first = lines.first(line);
    for (std::int64_t j = from; j < lines.n; j += step) f(first + j * lines.inner);
  }
  BELFRY_HD bool is_tie(std::int64_t line, std::int64_t at) const { return x[at] == y[line]; }
};

// The elements of x that are the extreme of their line get equal shares of its gradient.
template <class T>
struct SpreadToTies {
  struct Shared {
    std::int64_t ties[kFoldThreads], all;
  };
  TiedLines<T> in;
  const T* dy;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t step = in.lines.inner == 1 ? block.threads : 1;
    const auto from = [&](int thread) { return step == 1 ? 0 : thread; };
    const auto exists = [&](int thread) { return in.line(block, thread) < in.lines.count(); };
    block.each([&](int thread) {
      std::int64_t ties = 0;
      const std::int64_t line = in.line(block, thread);
      if (exists(thread))
        in.each(line, from(thread), step,
                [&](std::int64_t at) { ties += in.is_tie(line, at) ? 1 : 0; });
      shared.ties[thread] = ties;
    });
    block.each([&](int thread) {
      if (thread > 0) return;
      shared.all = 0;
      for (int k = 0; k < block.threads; ++k) shared.all += shared.ties[k];
    });
    block.each([&](int thread) {
      if (!exists(thread)) return;
      const std::int64_t line = in.line(block, thread);
      const T share = dy[line] / static_cast<T>(step == 1 ? shared.ties[thread] : shared.all);
      in.each(line, from(thread), step,
              [&](std::int64_t at) { dx[at] = share * (in.is_tie(line, at) ? T(1) : T(0)); });
    });
  }
};

// The mean of dx over the ties of each line, summed in order.
template <class T>
struct MeanOfTies {
  using Shared = Nothing;
  TiedLines<T> in;
  const T* dx;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t line = block.index * block.threads + thread;
      if (line >= in.lines.count()) return;
      T sum = 0, ties = 0;
      in.each(line, 0, 1, [&](std::int64_t at) {
        if (!in.is_tie(line, at)) return;
        sum += dx[at];
        ties += 1;
      });
      y[line] = sum / ties;
    });
  }
};

Lines tied_lines(const KernelPlan& plan) {
  const Shape& x = plan.input(1).shape;
  return {x, axis_mask(plan.options<ReductionOptions>().axes, x.rank())};
}

QueueRun spread_to_ties(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [lines = tied_lines(plan)]<class T>(T) -> QueueRun {
    return [lines](const KernelPointers& p, KernelQueue& queue) {
      const TiedLines<T> in{lines, p.input<T>(1), p.input<T>(2)};
      launch(queue, SpreadToTies<T>{in, p.input<T>(0), p.output<T>()}, in.grid());
    };
  });
}

QueueRun mean_of_ties(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [lines = tied_lines(plan)]<class T>(T) -> QueueRun {
    return [lines](const KernelPointers& p, KernelQueue& queue) {
      const TiedLines<T> in{lines, p.input<T>(1), p.input<T>(2)};
      launch(queue, MeanOfTies<T>{in, p.input<T>(0), p.output<T>()}, grid_for(lines.count()));
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kReduceSum, reduce<false>, kTakesHalf},
    {kReduceSumRows, reduce<false>, kTakesHalf},
    {kReduceMean, reduce<true>, kTakesHalf},
    {kReduceMeanRows, reduce<true>, kTakesHalf},
    {kReduceMax, extreme<kernels::Larger>, kTakesHalf},
    {kReduceMin, extreme<kernels::Smaller>, kTakesHalf},
    {kSpreadToTies, spread_to_ties},
    {kMeanOfTies, mean_of_ties},
    {kSumTo, sum_to, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
