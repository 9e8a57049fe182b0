// Layer and RMS normalisation: a block takes a row.
#include "belfry/framework/cuda/kernels/column_tree.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/kernels/row_norm.h"
#include "belfry/ops/normalization/layer_norm.h"

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

// Leaves in shared.by what kernels::row_scale() gives, for x [n].
template <class T>
BELFRY_HD void find_scale(const Block& block, NormShared<T>& shared, bool centred, const T* x,
                          std::int64_t n, T epsilon) {
  const T count = static_cast<T>(n);
  if (centred) fold(block, shared.fold, Add{}, 0, n, [&](std::int64_t i) { return x[i] - x[0]; });
  block.each([&](int thread) {
    if (thread == 0) shared.by.mean = centred ? x[0] + shared.fold.total / count : T(0);
  });
  fold(block, shared.fold, Add{}, 0, n,
       [&](std::int64_t i) { return (x[i] - shared.by.mean) * (x[i] - shared.by.mean); });
  block.each([&](int thread) {
    if (thread == 0) shared.by.scale = T(1) / math::sqrt(shared.fold.total / count + epsilon);
  });
}

template <class T>
struct NormRow {
  using Shared = NormShared<T>;
  const T *x, *gamma, *beta;  // beta: of layer norm, which is centred
  std::int64_t columns;
  T epsilon;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const T* const from = x + block.index * columns;
    T* const to = y + block.index * columns;
    find_scale(block, shared, beta != nullptr, from, columns, epsilon);
    for_each(block, columns, [&](std::int64_t i) {
      const T scaled = (from[i] - shared.by.mean) * shared.by.scale * gamma[i];
      to[i] = beta ? scaled + beta[i] : scaled;
    });
  }
};

// dx, and the scales of rows.
template <class T>
struct NormGradRow {
  using Shared = NormShared<T>;
  bool centred;
  const T *dy, *x, *gamma;
  std::int64_t columns;
  T epsilon;
  RowScale<T>* scales;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const T *const d = dy + block.index * columns, *const from = x + block.index * columns;
    T* const to = dx + block.index * columns;
    const T count = static_cast<T>(columns);
    find_scale(block, shared, centred, from, columns, epsilon);
    if (centred)
      fold(block, shared.fold, Add{}, 0, columns, [&](std::int64_t i) { return d[i] * gamma[i]; });
    block.each([&](int thread) {
      if (thread > 0) return;
      shared.offset = centred ? shared.fold.total / count : T(0);
      scales[block.index] = shared.by;
    });
    fold(block, shared.fold, Add{}, 0, columns, [&](std::int64_t i) {
      return d[i] * gamma[i] * ((from[i] - shared.by.mean) * shared.by.scale);
    });
    for_each(block, columns, [&](std::int64_t i) {
      const auto [mean, scale] = shared.by;
      const T slope = shared.fold.total / count;
      to[i] = scale * (d[i] * gamma[i] - shared.offset - (from[i] - mean) * scale * slope);
    });
  }
};

template <class T>
struct FactorGradients {
  T gamma, beta;
};

// Sums over rows 8 by 8, or over what groups of them have left: those of kernels::column_sums().
template <class T>
struct FactorLeaf {
  using Value = FactorGradients<T>;
  const T *dy, *x;
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
    const T d = dy[r * columns + column];
    return {d * ((x[r * columns + column] - scales[r].mean) * scales[r].scale), d};
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
template <class T>
void sum_over_rows(Queue& queue, FactorLeaf<T> leaf, FactorGradients<T>* parts) {
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

template <bool centred>
QueueRun norm(KernelPlan& plan) {
  const Shape& shape = plan.output().shape;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [grid = rows_of(shape), columns = shape.back(),
            epsilon = static_cast<T>(epsilon_of<centred>(plan))](const Pointers& p, Queue& queue) {
      launch(queue,
             NormRow<T>{p.input<T>(0), p.input<T>(1), centred ? p.input<T>(2) : nullptr, columns,
                        epsilon, p.output<T>()},
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
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    plan.workspace(parts * static_cast<std::int64_t>(sizeof(FactorGradients<T>)) +
                   grid.blocks * static_cast<std::int64_t>(sizeof(RowScale<T>)));
    return [=, columns = shape.back(), epsilon = static_cast<T>(epsilon_of<centred>(plan))](
               const Pointers& p, Queue& queue) {
      auto* const sums = reinterpret_cast<FactorGradients<T>*>(p.workspace());
      auto* const scales = reinterpret_cast<RowScale<T>*>(sums + parts);
      const T *const dy = p.input<T>(0), *const x = p.input<T>(1);
      launch(queue,
             NormGradRow<T>{centred, dy, x, p.input<T>(2), columns, epsilon, scales, p.output<T>()},
             grid);
      sum_over_rows(queue,
                    FactorLeaf<T>{.dy = dy,
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
};

}  // namespace
}  // namespace belfry::cuda
