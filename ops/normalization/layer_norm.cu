// Layer and RMS normalisation, with or without the sums around it (fused_layer_norm.h): a block
// takes a row. X is the type of y and dy, S that of the rows. Both are f32 or f64, or X has 16 bits
// and S is the same or f32.
#include "belfry/framework/cuda/kernels/column_tree.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/normalization/fused_layer_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/normalization/layer_norm_impl.h"
#include "belfry/ops/normalization/row_norm.h"

namespace belfry::cuda {
namespace {

using kernels::Add;
using kernels::RowScale;

template <class T>
struct NormShared {
  FoldShared<T> fold;
  RowScale<T> by;
  T offset;
};

template <class X>
BELFRY_HD X rounded_sum(Wide<X> a, Wide<X> b) {
  return Stored<X>::narrow(a + b);
}

// Leaves in shared.by what kernels::row_scale() gives, for x [n].
template <class S, class T>
BELFRY_HD void find_scale(const Block& block, NormShared<T>& shared, bool centred, const S* x,
                          std::int64_t n, T epsilon) {
  const T count = static_cast<T>(n);
  const auto at = [x](std::int64_t i) { return Stored<S>::widen(x[i]); };
  if (centred) fold(block, shared.fold, Add{}, 0, n, [&](std::int64_t i) { return at(i) - at(0); });
  block.each([&](int thread) {
    if (thread == 0) shared.by.mean = centred ? at(0) + shared.fold.total / count : T(0);
  });
  fold(block, shared.fold, Add{}, 0, n,
       [&](std::int64_t i) { return (at(i) - shared.by.mean) * (at(i) - shared.by.mean); });
  block.each([&](int thread) {
    if (thread == 0) shared.by.scale = T(1) / math::sqrt(shared.fold.total / count + epsilon);
  });
}

// What the graph rounds is rounded here. y may be x, and sum may be rows, or y.
template <class X, class S>
struct NormRow {
  using T = Wide<S>;
  using Shared = NormShared<T>;
  const X *x, *bias;  // null: nothing is added
  const S* rows;
  const T *gamma, *beta;  // beta: of layer norm, which is centred
  std::int64_t columns;
  T epsilon;
  X* y;
  S* sum;  // where x + rows goes, if there is x

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t first = block.index * columns;
    const S* from = rows + first;
    if (x) {
      for_each(block, columns, [&](std::int64_t i) {
        X term = x[first + i];
        if (bias) term = rounded_sum<X>(Stored<X>::widen(term), Stored<X>::widen(bias[i]));
        sum[first + i] = rounded_sum<S>(Stored<X>::widen(term), Stored<S>::widen(from[i]));
      });
      from = sum + first;
    }
    X* const to = y + first;
    find_scale(block, shared, beta != nullptr, from, columns, epsilon);
    for_each(block, columns, [&](std::int64_t i) {
      const T centred = Stored<S>::widen(from[i]) - shared.by.mean;
      const T scaled = centred * shared.by.scale * gamma[i];
      to[i] = Stored<X>::narrow(beta ? scaled + beta[i] : scaled);
    });
  }
};

// dx, to which `other` is added unless it is null, and the scales of rows.
template <class X, class S>
struct NormGradRow {
  using T = Wide<S>;
  using Shared = NormShared<T>;
  bool centred;
  const X* dy;
  const S *x, *other;
  const T* gamma;
  std::int64_t columns;
  T epsilon;
  RowScale<T>* scales;
  S* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t first = block.index * columns;
    const S* const from = x + first;
    const auto weighted = [this, first](std::int64_t i) {
      return Stored<X>::widen(dy[first + i]) * gamma[i];
    };
    const auto normed = [&](std::int64_t i) {
      return (Stored<S>::widen(from[i]) - shared.by.mean) * shared.by.scale;
    };
    const T count = static_cast<T>(columns);
    find_scale(block, shared, centred, from, columns, epsilon);
    if (centred) fold(block, shared.fold, Add{}, 0, columns, weighted);
    block.each([&](int thread) {
      if (thread > 0) return;
      shared.offset = centred ? shared.fold.total / count : T(0);
      scales[block.index] = shared.by;
    });
    fold(block, shared.fold, Add{}, 0, columns,
         [&](std::int64_t i) { return weighted(i) * normed(i); });
    for_each(block, columns, [&](std::int64_t i) {
      const T slope = shared.fold.total / count;
      S own =
          Stored<S>::narrow(shared.by.scale * (weighted(i) - shared.offset - normed(i) * slope));
      if (other) own = rounded_sum<S>(Stored<S>::widen(own), Stored<S>::widen(other[first + i]));
      dx[first + i] = own;
    });
  }
};

template <class T>
struct FactorGradients {
  T gamma, beta;
};

// Sums over rows 8 by 8, or over what groups of them have left: those of kernels::column_sums().
template <class X, class S>
struct FactorLeaf {
  using T = Wide<S>;
  using Value = FactorGradients<T>;
  const X* dy;
  const S* x;
  const RowScale<T>* scales;
  const Value* parts;  // null for rows
  std::int64_t rows, columns;
  Value* to_parts;  // null in the last step
  T *dgamma, *dbeta;

  BELFRY_HD static Value neutral() { return {Add::kNeutral<T>, Add::kNeutral<T>}; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) {
    return {a.gamma + b.gamma, a.beta + b.beta};
  }
  BELFRY_HD Value row(std::int64_t r, std::int64_t column) const {
    if (r >= rows) return neutral();
    const T d = Stored<X>::widen(dy[r * columns + column]);
    const T centred = Stored<S>::widen(x[r * columns + column]) - scales[r].mean;
    return {d * (centred * scales[r].scale), d};
  }
  BELFRY_HD Value operator()(std::int64_t, std::int64_t leaf, std::int64_t column) const {
    if (parts) return parts[leaf * columns + column];
    Value v[8];
    for (int k = 0; k < 8; ++k) v[k] = row(leaf * 8 + k, column);
    return combine(combine(combine(v[0], v[4]), combine(v[2], v[6])),
                   combine(combine(v[1], v[5]), combine(v[3], v[7])));
  }
  BELFRY_HD void finish(std::int64_t, std::int64_t group, std::int64_t column,
                        const Value& total) const {
    if (to_parts) {
      to_parts[group * columns + column] = total;
      return;
    }
    dgamma[column] = total.gamma;
    if (dbeta) dbeta[column] = total.beta;
  }
};

// In one launch, or two where there are many rows.
template <class X, class S>
void sum_over_rows(KernelQueue& queue, FactorLeaf<X, S> leaf, FactorGradients<Wide<S>>* parts) {
  const std::int64_t leaves = (leaf.rows + 7) / 8;
  const LeafGroups by(leaves);
  leaf.to_parts = by.groups == 1 ? nullptr : parts;
  column_tree(queue, leaf, 1, leaves, leaf.columns, by);
  if (by.groups == 1) return;
  leaf.parts = parts;
  leaf.to_parts = nullptr;
  LeafGroups one(1);
  one.per_group = by.groups;
  column_tree(queue, leaf, 1, by.groups, leaf.columns, one);
}

template <bool centred>
double epsilon_of(const KernelPlan& plan) {
  if constexpr (centred)
    return plan.options<LayerNormOptions>().epsilon;
  else
    return plan.options<RmsNormOptions>().epsilon;
}

// Calls f(X{}, S{}).
template <class F>
QueueRun visit_rows(DType x, DType rows, const F& f) {
  if (x == rows) return visit_stored(x, [&]<class X>(X) { return f(X{}, X{}); });
  const auto no_half = [](DType, const auto&) { return QueueRun(); };
  return kernels::visit_half_or(x, no_half, [&]<class X>(X) { return f(X{}, float{}); });
}

template <bool centred>
QueueRun norm(KernelPlan& plan) {
  const Shape& shape = plan.output().shape;
  const std::size_t gamma = plan.inputs() - row_norm_factors(centred), rows = gamma > 1 ? 1 : 0;
  const double epsilon = epsilon_of<centred>(plan);
  return visit_rows(plan.dtype(), plan.input(rows).dtype, [&]<class X, class S>(X, S) -> QueueRun {
    using T = Wide<S>;
    return
        [=, grid = rows_of(shape), columns = shape.back()](const Pointers& p, KernelQueue& queue) {
          launch(queue,
                 NormRow<X, S>{.x = rows > 0 ? p.input<X>(0) : nullptr,
                               .bias = gamma > 2 ? p.input<X>(2) : nullptr,
                               .rows = p.input<S>(rows),
                               .gamma = p.input<T>(gamma),
                               .beta = centred ? p.input<T>(gamma + 1) : nullptr,
                               .columns = columns,
                               .epsilon = static_cast<T>(epsilon),
                               .y = p.output<X>(),
                               .sum = p.output<S>(p.outputs() - 1)},
                 grid);
        };
  });
}

template <bool centred>
QueueRun norm_grad(KernelPlan& plan) {
  const Shape& shape = plan.input(1).shape;
  const Grid grid = rows_of(shape);
  const LeafGroups groups((grid.blocks + 7) / 8);
  const std::int64_t parts = groups.groups == 1 ? 0 : groups.groups * shape.back();
  const double epsilon = epsilon_of<centred>(plan);
  return visit_rows(plan.input(0).dtype, plan.dtype(), [&]<class X, class S>(X, S) -> QueueRun {
    using T = Wide<S>;
    plan.workspace(parts * static_cast<std::int64_t>(sizeof(FactorGradients<T>)) +
                   grid.blocks * static_cast<std::int64_t>(sizeof(RowScale<T>)));
    return [=, columns = shape.back()](const Pointers& p, KernelQueue& queue) {
      auto* const sums = reinterpret_cast<FactorGradients<T>*>(p.workspace());
      auto* const scales = reinterpret_cast<RowScale<T>*>(sums + parts);
      const X* const dy = p.input<X>(0);
      const S* const x = p.input<S>(1);
      launch(queue,
             NormGradRow<X, S>{.centred = centred,
                               .dy = dy,
                               .x = x,
                               .other = p.inputs() > 3 ? p.input<S>(3) : nullptr,
                               .gamma = p.input<T>(2),
                               .columns = columns,
                               .epsilon = static_cast<T>(epsilon),
                               .scales = scales,
                               .dx = p.output<S>()},
             grid);
      sum_over_rows(queue,
                    FactorLeaf<X, S>{.dy = dy,
                                     .x = x,
                                     .scales = scales,
                                     .parts = nullptr,
                                     .rows = grid.blocks,
                                     .columns = columns,
                                     .to_parts = nullptr,
                                     .dgamma = p.output<T>(1),
                                     .dbeta = centred ? p.output<T>(2) : nullptr},
                    sums);
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kLayerNorm, norm<true>},
    {kLayerNormGrad, norm_grad<true>},
    {kRmsNorm, norm<false>},
    {kRmsNormGrad, norm_grad<false>},
    {kFusedLayerNorm, norm<true>, kTakesHalf},
    {kFusedLayerNormGrad, norm_grad<true>, kTakesHalf},
    {kFusedRmsNorm, norm<false>, kTakesHalf},
    {kFusedRmsNormGrad, norm_grad<false>, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
