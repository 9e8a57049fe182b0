// Sums over axes: those of ops/reduce.cc and SumTo, with the bits of hosts.
#include "belfry/framework/cuda/kernels/column_tree.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
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

template <class T>
BELFRY_HD T divided(T sum, bool mean, T count) {
  if constexpr (std::is_floating_point_v<T>)
    if (mean) return sum / count;
  return sum;
}

// y[row, part] = the fold of chunks [part * kChunks, ..) of a row: their partial sums where rows
// have several parts.
template <class T>
struct RowFold {
  static constexpr std::int64_t kPart = 16 * kChunk;
  using Shared = FoldShared<T>;
  const T* x;
  std::int64_t columns, parts;
  T* y;
  bool mean;
  T count;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t row = block.index / parts, begin = block.index % parts * kPart;
    const std::int64_t end = begin + kPart < columns ? begin + kPart : columns;
    const T* const from = x + row * columns;
    fold(block, shared, Add{}, begin, end, [&](std::int64_t i) { return from[i]; });
    block.each([&](int thread) {
      if (thread == 0) y[block.index] = divided(shared.total, mean, count);
    });
  }
};

// x is [outer, rows, columns] and a leaf 8 rows, or the partial sums of those, one by one.
template <class T>
struct SumLeaf {
  using Value = T;
  const T* x;
  std::int64_t rows, columns, groups;
  bool partial;
  T* y;
  bool mean;
  T count;

  BELFRY_HD static T neutral() { return Add::kNeutral<T>; }
  BELFRY_HD static T combine(T a, T b) { return a + b; }
  BELFRY_HD T operator()(std::int64_t outer, std::int64_t leaf, std::int64_t column) const {
    const T* const from = x + outer * rows * columns + column;
    if (partial) return from[leaf * columns];
    T term[8];
    for (int k = 0; k < 8; ++k)
      term[k] = leaf * 8 + k < rows ? from[(leaf * 8 + k) * columns] : neutral();
    return kernels::fold8(Add{}, term[0], term[1], term[2], term[3], term[4], term[5], term[6],
                          term[7]);
  }
  BELFRY_HD void finish(std::int64_t outer, std::int64_t group, std::int64_t column,
                        T total) const {
    y[(outer * groups + group) * columns + column] = divided(total, mean, count);
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
    plan.workspace((partial_ + most) * static_cast<std::int64_t>(size_of(plan.dtype())));
  }

  template <class T>
  void run(const Pointers& p, Queue& queue) const {
    T* const scratch = reinterpret_cast<T*>(p.workspace());
    const T* x = p.input<T>(0);
    for (const Reduction::Step& step : steps_) {
      const bool last = &step == &steps_.back();
      T* const y = last ? p.output<T>() : scratch + step.to;
      sum(queue, step, x, y, scratch + partial_, last && mean_, static_cast<T>(count_));
      x = y;
    }
  }

 private:
  static std::int64_t aligned(std::int64_t elements) { return (elements + 15) / 16 * 16; }
  static std::int64_t leaves(const Reduction::Step& step) { return (step.reduced + 7) / 8; }

  // Partial sums of each result.
  static std::int64_t parts(const Reduction::Step& step) {
    if (step.inner != 1) return LeafGroups(leaves(step)).groups;
    const std::int64_t part = RowFold<float>::kPart;
    return step.reduced <= part ? 1 : (step.reduced + part - 1) / part;
  }

  template <class T>
  static void sum(Queue& queue, const Reduction::Step& step, const T* x, T* y, T* partial,
                  bool mean, T count) {
    const auto [outer, reduced, inner, unused] = step;
    const std::int64_t n = parts(step);
    T* const to = n == 1 ? y : partial;
    if (inner == 1) {
      launch(queue, RowFold<T>{x, reduced, n, to, n == 1 && mean, count},
             {.blocks = outer * n, .threads = kFoldThreads});
    } else {
      column_tree(queue, SumLeaf<T>{x, reduced, inner, n, false, to, n == 1 && mean, count}, outer,
                  leaves(step), inner, LeafGroups(leaves(step)));
    }
    if (n == 1) return;
    LeafGroups one(1);
    one.per_group = n;
    column_tree(queue, SumLeaf<T>{partial, n, inner, 1, true, y, mean, count}, outer, n, inner,
                one);
  }

  std::vector<Reduction::Step> steps_;
  bool mean_;
  double count_ = 1;
  std::int64_t partial_ = 0;
};

QueueRun sums(KernelPlan& plan, const std::vector<bool>& reduced, bool mean) {
  return visit_numeric(plan.dtype(), [sums = Sums(plan, reduced, mean)]<class T>(T) -> QueueRun {
    return [sums](const Pointers& p, Queue& queue) { sums.run<Summed<T>>(p, queue); };
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
    {kReduceSum, reduce<false>},
    {kReduceSumRows, reduce<false>},
    {kReduceMean, reduce<true>},
    {kReduceMeanRows, reduce<true>},
    {kSumTo, sum_to},
};

}  // namespace
}  // namespace belfry::cuda
