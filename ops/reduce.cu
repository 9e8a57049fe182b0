// Sums over axes, of ops/reduce.cc and SumTo, with the same bits as on hosts.
#include "belfry/framework/cuda/kernels/column_tree.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/kernels/reduction.h"
#include "belfry/ops/reduce.h"
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

// y[row, part] = the fold of elements [part * kPart, ..) of a row: partial sums if rows have
// several parts.
template <class X, class Y>
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
    fold(block, shared, Add{}, begin, end,
         [&](std::int64_t i) { return Stored<X>::widen(from[i]); });
    block.each([&](int thread) {
      if (thread == 0) y[block.index] = result_of<Y>(shared.total, mean, count);
    });
  }
};

// x is [outer, rows, columns]. A leaf is 8 rows of terms, or one row of partial sums.
template <class X, class Y>
struct SumLeaf {
  using Value = Wide<X>;
  const X* x;
  std::int64_t rows, columns, groups;
  bool partial;
  Y* y;
  bool mean;
  Value count;

  BELFRY_HD static Value neutral() { return Add::kNeutral<Value>; }
  BELFRY_HD static Value combine(Value a, Value b) { return a + b; }
  BELFRY_HD Value operator()(std::int64_t outer, std::int64_t leaf, std::int64_t column) const {
    const X* const from = x + outer * rows * columns + column;
    if (partial) return Stored<X>::widen(from[leaf * columns]);
    Value term[8];
    for (int k = 0; k < 8; ++k)
      term[k] = leaf * 8 + k < rows ? Stored<X>::widen(from[(leaf * 8 + k) * columns]) : neutral();
    return kernels::fold8(Add{}, term[0], term[1], term[2], term[3], term[4], term[5], term[6],
                          term[7]);
  }
  BELFRY_HD void finish(std::int64_t outer, std::int64_t group, std::int64_t column,
                        Value total) const {
    y[(outer * groups + group) * columns + column] = result_of<Y>(total, mean, count);
  }
};

// The sums or means of a tensor, step by step.
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
    const std::int64_t part = RowFold<float, float>::kPart;
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
    column_tree(queue, SumLeaf<Wide<X>, Y>{partial, n, step.inner, 1, true, y, mean, count},
                step.outer, n, step.inner, one);
  }
  // Computes parts(step) sums of each result.
  template <class X, class Y>
  static void sum_parts(KernelQueue& queue, const Reduction::Step& step, const X* x, Y* y,
                        bool mean, Wide<X> count) {
    const auto [outer, reduced, inner, unused] = step;
    const std::int64_t n = parts(step);
    if (inner == 1)
      launch(queue, RowFold<X, Y>{x, reduced, n, y, mean, count},
             {.blocks = outer * n, .threads = kFoldThreads});
    else
      column_tree(queue, SumLeaf<X, Y>{x, reduced, inner, n, false, y, mean, count}, outer,
                  leaves(step), inner, LeafGroups(leaves(step)));
  }

  std::vector<Reduction::Step> steps_;
  bool mean_;
  double count_ = 1;
  std::int64_t partial_ = 0;
};

QueueRun sums(KernelPlan& plan, const std::vector<bool>& reduced, bool mean) {
  return kernels::visit_half_or(
      plan.dtype(), [](DType dtype, const auto& f) { return visit_numeric(dtype, f); },
      [sums = Sums(plan, reduced, mean)]<class X>(X) -> QueueRun {
        return
            [sums](const KernelPointers& p, KernelQueue& queue) { sums.run<Summed<X>>(p, queue); };
      });
}

template <bool mean>
QueueRun reduce(KernelPlan& plan) {
  return sums(plan, axis_mask(plan.options<ReductionOptions>().axes, plan.input(0).shape.rank()),
              mean);
}

QueueRun sum_to(KernelPlan& plan) {
  return sums(plan, repeated_axes(plan.input(0).shape, plan.output().shape), false);
}

const GpuKernel kernels_of_ops[] = {
    {kReduceSum, reduce<false>, kTakesHalf},
    {kReduceSumRows, reduce<false>, kTakesHalf},
    {kReduceMean, reduce<true>, kTakesHalf},
    {kReduceMeanRows, reduce<true>, kTakesHalf},
    {kSumTo, sum_to, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
