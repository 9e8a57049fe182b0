// Layer and RMS normalisation, with or without the sums around it (fused_layer_norm.h): a block
// takes one row, or several short ones. X is the type of y and dy, S that of the rows: both are of
// f32 or f64, or X is of 16 bits and S the same or f32.
#include "belfry/framework/cuda/kernels/cast.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/cuda/kernels/row_passes.cuh"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/normalization/fused_layer_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/normalization/layer_norm_impl.h"
#include "belfry/ops/normalization/row_norm.h"

namespace belfry::cuda {
namespace {

using kernels::Add;
using kernels::RowScale;

// Short rows are kept in shared memory; the others are read again.
template <class T, int R>
struct KeptRows {
  T at[R][kShortRowColumns<T>];
};
template <class T>
struct KeptRows<T, 1> {};

template <class T, int R>
struct NormShared {
  RowFolds<T, R> folds;
  RowScale<T> by[R];
  T offset[R], slope[R];
  KeptRows<T, R> x;
};

template <class T, int R>
struct NormGradShared : NormShared<T, R> {
  KeptRows<T, R> weighted;
};

template <class X>
BELFRY_HD X rounded_sum(Wide<X> a, Wide<X> b) {
  return Stored<X>::narrow(a + b);
}

// Sets shared.by to the results of kernels::row_scale() for rows of x(row, i).
template <class T, int R, class Value>
BELFRY_HD void find_scales(const Block& block, NormShared<T, R>& shared, bool centred,
                           const RowBlocks<R>& by, T epsilon, const Value& x) {
  const T count = static_cast<T>(by.columns);
  if (centred)
    fold_rows(
        block, shared.folds, Add{}, by,
        [&](int row, std::int64_t i) { return x(row, i) - x(row, 0); },
        [&](int row, T total) { shared.by[row].mean = x(row, 0) + total / count; });
  else
    block.each([&](int thread) {
      if (thread < R) shared.by[thread].mean = T(0);
    });
  fold_rows(
      block, shared.folds, Add{}, by,
      [&](int row, std::int64_t i) {
        const T distance = x(row, i) - shared.by[row].mean;
        return distance * distance;
      },
      [&](int row, T total) { shared.by[row].scale = T(1) / math::sqrt(total / count + epsilon); });
}

// R rows to a block, N elements at once. Rounds where the graph does. y may be x, and sum may be
// rows, or y.
template <class X, class S, int R, int N>
struct NormRow {
  using T = Wide<S>;
  using Shared = NormShared<T, R>;
  RowBlocks<R> by;
  const X *x, *bias;  // null: nothing is added
  const S* rows;
  const T *gamma, *beta;  // beta: only for layer norm, which is centred
  T epsilon;
  X* y;
  S* sum;  // the result x + rows, if there is x

  BELFRY_HD Lanes<S, N> row_of(std::int64_t at, std::int64_t column) const {
    Lanes<S, N> row = Lanes<S, N>::load(rows + at);
    if (!x) return row;
    Lanes<X, N> term = Lanes<X, N>::load(x + at);
    const Lanes<X, N> of_bias = bias ? Lanes<X, N>::load(bias + column) : Lanes<X, N>{};
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      if (bias) term.at[j] = rounded_sum<X>(term.wide(j), of_bias.wide(j));
      row.at[j] = rounded_sum<S>(term.wide(j), row.wide(j));
    }
    row.store(sum + at);
    return row;
  }

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const S* const from = x ? sum : rows;
    const auto place = [&](int row) { return (by.first(block) + row) * by.columns; };
    const auto value = [&](int row, std::int64_t i) {
      if constexpr (R > 1)
        return shared.x.at[row][i];
      else
        return Stored<S>::widen(from[place(row) + i]);
    };
    if (R > 1 || x)
      by.template each<N>(block, [&](int row, std::int64_t i) {
        const Lanes<S, N> lanes = row_of(place(row) + i, i);
        if constexpr (R > 1)
          for (int j = 0; j < N; ++j) shared.x.at[row][i + j] = lanes.wide(j);
      });
    find_scales(block, shared, beta != nullptr, by, epsilon, value);
    by.template each<N>(block, [&](int row, std::int64_t i) {
      const RowScale<T>& of = shared.by[row];
      const Lanes<T, N> factors = Lanes<T, N>::load(gamma + i);
      const Lanes<T, N> offsets = beta ? Lanes<T, N>::load(beta + i) : Lanes<T, N>{};
      Lanes<X, N> out{};
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) {
        const T scaled = (value(row, i + j) - of.mean) * of.scale * factors.at[j];
        out.at[j] = Stored<X>::narrow(beta ? scaled + offsets.at[j] : scaled);
      }
      out.store(y + place(row) + i);
    });
  }
};

template <class X, class S, int N>
BELFRY_HD void store_rounded(const Lanes<S, N>& lanes, X* to) {
  Lanes<X, N> rounded{};
  BELFRY_UNROLL
  for (int j = 0; j < N; ++j) rounded.at[j] = Stored<X>::narrow(lanes.wide(j));
  rounded.store(to);
}

// Computes dx, adds `other` unless it is null, and computes the scales of rows. `narrow` gets dx,
// too, unless it is null.
template <class X, class S, int R, int N>
struct NormGradRow {
  using T = Wide<S>;
  using Shared = NormGradShared<T, R>;
  RowBlocks<R> by;
  bool centred;
  const X* dy;
  const S *x, *other;
  const T* gamma;
  T epsilon;
  RowScale<T>* scales;
  S* dx;
  X* narrow;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const auto place = [&](int row) { return (by.first(block) + row) * by.columns; };
    const auto value = [&](int row, std::int64_t i) {
      if constexpr (R > 1)
        return shared.x.at[row][i];
      else
        return Stored<S>::widen(x[place(row) + i]);
    };
    const auto weighted = [&](int row, std::int64_t i) {
      if constexpr (R > 1)
        return shared.weighted.at[row][i];
      else
        return Stored<X>::widen(dy[place(row) + i]) * gamma[i];
    };
    const auto normed = [&](int row, std::int64_t i) {
      return (value(row, i) - shared.by[row].mean) * shared.by[row].scale;
    };
    if constexpr (R > 1)
      by.template each<N>(block, [&](int row, std::int64_t i) {
        const auto dy_of = Lanes<X, N>::load(dy + place(row) + i);
        const auto x_of = Lanes<S, N>::load(x + place(row) + i);
        const auto factors = Lanes<T, N>::load(gamma + i);
        for (int j = 0; j < N; ++j) {
          shared.x.at[row][i + j] = x_of.wide(j);
          shared.weighted.at[row][i + j] = dy_of.wide(j) * factors.at[j];
        }
      });
    const T count = static_cast<T>(by.columns);
    find_scales(block, shared, centred, by, epsilon, value);
    if (centred)
      fold_rows(block, shared.folds, Add{}, by, weighted,
                [&](int row, T total) { shared.offset[row] = total / count; });
    else
      block.each([&](int thread) {
        if (thread < R) shared.offset[thread] = T(0);
      });
    fold_rows(
        block, shared.folds, Add{}, by,
        [&](int row, std::int64_t i) { return weighted(row, i) * normed(row, i); },
        [&](int row, T total) {
          shared.slope[row] = total / count;
          scales[by.first(block) + row] = shared.by[row];
        });
    by.template each<N>(block, [&](int row, std::int64_t i) {
      const std::int64_t at = place(row) + i;
      const Lanes<S, N> others = other ? Lanes<S, N>::load(other + at) : Lanes<S, N>{};
      Lanes<S, N> out{};
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) {
        const T own = shared.by[row].scale * (weighted(row, i + j) - shared.offset[row] -
                                              normed(row, i + j) * shared.slope[row]);
        out.at[j] = Stored<S>::narrow(own);
        if (other) out.at[j] = rounded_sum<S>(out.wide(j), others.wide(j));
      }
      out.store(dx + at);
      if (narrow) store_rounded(out, narrow + at);
    });
  }
};

// Calls f with the rows of a block and the elements that a thread has at once: several of both if
// rows are short, and enough to keep the whole GPU busy.
template <class X, class S, class F>
void visit_row_blocks(const RowsOf& rows, std::initializer_list<const void*> tensors, const F& f) {
  constexpr std::int64_t kManyBlocks = 264;  // two for each of 132 multiprocessors
  constexpr int N = Pack<std::conditional_t<(sizeof(X) > sizeof(S)), X, S>>::kSize;
  bool packed = rows.channels <= kShortRowColumns<Wide<S>> &&
                rows.rows >= kManyBlocks * kWarpsPerBlock && rows.channels % N == 0;
  for (const void* tensor : tensors) packed = packed && on_16_bytes(tensor);
  if (packed)
    f(std::integral_constant<int, kWarpsPerBlock>{}, std::integral_constant<int, N>{});
  else
    f(std::integral_constant<int, 1>{}, std::integral_constant<int, 1>{});
}

template <class T>
struct FactorGradients {
  T gamma, beta;
};

// Sums groups of 8 rows, in the order of kernels::column_sums().
template <class X, class S, int N>
struct FactorLeaf {
  using T = Wide<S>;
  using Value = FactorGradients<T>;
  static constexpr int kChannels = N, kEach = 2;
  const X* dy;
  const S* x;
  const RowScale<T>* scales;
  std::int64_t rows, channels;
  T *dgamma, *dbeta;
  Value* to_parts;  // null in the last launch

  BELFRY_HD static Value neutral() { return {Add::kNeutral<T>, Add::kNeutral<T>}; }
  BELFRY_HD static Value combine(const Value& a, const Value& b) {
    return {a.gamma + b.gamma, a.beta + b.beta};
  }
  BELFRY_HD bool whole(std::int64_t end) const { return end * kLeaf <= rows; }

  template <bool all>
  BELFRY_HD void term(std::int64_t leaf, std::int64_t channel, Value (&out)[N]) const {
    BELFRY_ROLL
    for (int odd = 0; odd < 2; ++odd) {
      Value half[N];
      add_half<all>(leaf * kLeaf + odd, channel, half);
      BELFRY_UNROLL
      for (int j = 0; j < N; ++j) out[j] = odd == 0 ? half[j] : combine(out[j], half[j]);
    }
  }

  // Every other row of a leaf. All rows at once would need too many registers.
  template <bool all>
  BELFRY_HD void add_half(std::int64_t first, std::int64_t channel, Value (&out)[N]) const {
    constexpr int kRows = kLeaf / 2;
    Lanes<X, N> dy_of[kRows]{};
    Lanes<S, N> x_of[kRows]{};
    RowScale<T> by[kRows]{};
    const auto exists = [&](int k) { return all || first + 2 * k < rows; };
    BELFRY_UNROLL
    for (int k = 0; k < kRows; ++k) {
      if (!exists(k)) continue;
      const std::int64_t at = (first + 2 * k) * channels + channel;
      dy_of[k] = Lanes<X, N>::load(dy + at);
      x_of[k] = Lanes<S, N>::load(x + at);
      by[k] = scales[first + 2 * k];
    }
    BELFRY_UNROLL
    for (int j = 0; j < N; ++j) {
      Value v[kRows];
      BELFRY_UNROLL
      for (int k = 0; k < kRows; ++k) {
        const T d = dy_of[k].wide(j);
        v[k] = exists(k) ? Value{d * ((x_of[k].wide(j) - by[k].mean) * by[k].scale), d} : neutral();
      }
      out[j] = combine(combine(v[0], v[2]), combine(v[1], v[3]));
    }
  }

  BELFRY_HD void finish(std::int64_t group, std::int64_t channel, const Value& total) const {
    if (to_parts) {
      to_parts[group * channels + channel] = total;
      return;
    }
    dgamma[channel] = total.gamma;
    if (dbeta) dbeta[channel] = total.beta;
  }
};

// Lanes of 16 bytes of the wider type.
template <class X, class S, class F>
void visit_lanes_of_both(std::int64_t columns, const X* dy, const S* x, const F& f) {
  if constexpr (sizeof(X) > sizeof(S))
    visit_lanes<X>(columns, {dy, x}, f);
  else
    visit_lanes<S>(columns, {dy, x}, f);
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
    return [=, of = RowsOf(shape)](const KernelPointers& p, KernelQueue& queue) {
      const X* const x = rows > 0 ? p.input<X>(0) : nullptr;
      const X* const bias = gamma > 2 ? p.input<X>(2) : nullptr;
      const T* const beta = centred ? p.input<T>(gamma + 1) : nullptr;
      S* const sum = p.output<S>(p.outputs() - 1);
      visit_row_blocks<X, S>(
          of, {x, bias, p.input<S>(rows), p.input<T>(gamma), beta, p.output<X>(), sum},
          [&]<int R, int N>(std::integral_constant<int, R>, std::integral_constant<int, N>) {
            const RowBlocks<R> by{of.rows, of.channels};
            launch(queue,
                   NormRow<X, S, R, N>{.by = by,
                                       .x = x,
                                       .bias = bias,
                                       .rows = p.input<S>(rows),
                                       .gamma = p.input<T>(gamma),
                                       .beta = beta,
                                       .epsilon = static_cast<T>(epsilon),
                                       .y = p.output<X>(),
                                       .sum = sum},
                   by.grid());
          });
    };
  });
}

const Variant narrow_gradient("row_norm.narrow_gradient");

template <bool centred>
QueueRun norm_grad(KernelPlan& plan) {
  const RowsOf rows(plan.input(1).shape);
  const double epsilon = epsilon_of<centred>(plan);
  constexpr std::size_t kNarrow = 1 + row_norm_factors(centred);
  const DType half = plan.outputs() > kNarrow ? plan.output(kNarrow).dtype : DType::kF32;
  return visit_rows(plan.input(0).dtype, plan.dtype(), [&]<class X, class S>(X, S) -> QueueRun {
    using T = Wide<S>;
    const std::int64_t parts = parts_bytes<FactorGradients<T>>(rows);
    plan.workspace(parts + rows.rows * static_cast<std::int64_t>(sizeof(RowScale<T>)));
    return [=, at_once = narrow_gradient.on()](const KernelPointers& p, KernelQueue& queue) {
      auto* const scales = reinterpret_cast<RowScale<T>*>(p.workspace() + parts);
      const X* const dy = p.input<X>(0);
      const S* const x = p.input<S>(1);
      const S* const other = p.inputs() > 3 ? p.input<S>(3) : nullptr;
      X* const narrow = is_half(half) && at_once ? p.output<X>(kNarrow) : nullptr;
      visit_row_blocks<X, S>(
          rows, {dy, x, other, p.input<T>(2), p.output<S>(), narrow},
          [&]<int R, int N>(std::integral_constant<int, R>, std::integral_constant<int, N>) {
            const RowBlocks<R> by{rows.rows, rows.channels};
            launch(queue,
                   NormGradRow<X, S, R, N>{.by = by,
                                           .centred = centred,
                                           .dy = dy,
                                           .x = x,
                                           .other = other,
                                           .gamma = p.input<T>(2),
                                           .epsilon = static_cast<T>(epsilon),
                                           .scales = scales,
                                           .dx = p.output<S>(),
                                           .narrow = narrow},
                   by.grid());
          });
      if (is_half(half) && !at_once)
        cast(queue, DType::kF32, p.output<void>(), half, p.output<void>(kNarrow), 0,
             rows.rows * rows.channels);
      visit_lanes_of_both(rows.channels, dy, x, [&]<int N>(std::integral_constant<int, N>) {
        over_rows(queue, rows,
                  FactorLeaf<X, S, N>{.dy = dy,
                                      .x = x,
                                      .scales = scales,
                                      .rows = rows.rows,
                                      .channels = rows.channels,
                                      .dgamma = p.output<T>(1),
                                      .dbeta = centred ? p.output<T>(2) : nullptr,
                                      .to_parts = nullptr},
                  p.workspace());
      });
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
