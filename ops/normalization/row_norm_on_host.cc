// Host kernels for layer and RMS norm, with or without the sums around it (fused_layer_norm.h).
// Kernels of 16 bits compute in f32, and round where the separate nodes do.
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/widened.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/stored_elements.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/layer_norm_impl.h"
#include "belfry/ops/normalization/row_norm.h"

namespace belfry {
namespace {

constexpr std::int64_t kFloatBytes = 4;

template <class T>
void add_to_row(const T* a, const T* b, std::int64_t n, T* sum) {
  kernels::map(functors::Add{}, 0, n, sum, a, b);
}

// Inputs are rows, or x, shortcut, and perhaps bias; then gamma, and beta if centred.
template <bool centred>
KernelRun norm_of_half(KernelPlan& plan) {
  const NormRows rows(plan.output().shape);
  const std::size_t gamma_at = plan.inputs() - row_norm_factors(centred);
  const std::size_t rows_at = gamma_at > 1 ? 1 : 0;
  const auto epsilon = static_cast<float>(plan.options<RowNormOptions<centred>>().epsilon);
  const kernels::StoredElements<float> of_y(plan.dtype()), of_rows(plan.input(rows_at).dtype);
  plan.workspace(3 * rows.columns * kFloatBytes);
  return [=, n = rows.columns](const KernelPointers& p) {
    const float *const gamma = p.input<float>(gamma_at), *const beta =
                                                             centred ? p.input<float>(gamma_at + 1)
                                                                     : nullptr;
    auto* const row = reinterpret_cast<float*>(p.workspace());
    float *const x = row + n, *const y = x + n;
    for (std::int64_t r = p.begin() * rows.per_sample; r < p.end() * rows.per_sample; ++r) {
      of_rows.load(p.input<void>(rows_at), r * n, n, row);
      if (rows_at > 0) of_y.load(p.input<void>(0), r * n, n, x);
      if (gamma_at > 2) {
        of_y.load(p.input<void>(2), 0, n, y);
        add_to_row<float>(x, y, n, x);
        of_y.round(x, n);
      }
      if (rows_at > 0) {
        add_to_row<float>(x, row, n, row);
        of_rows.round(row, n);
        if (p.outputs() > 1) of_rows.store(row, n, p.output<void>(1), r * n);
      }
      const auto by = kernels::row_scale<centred>(row, n, epsilon);
      kernels::normalise_row<centred>(row, n, by, gamma, beta, y);
      of_y.store(y, n, p.output<void>(), r * n);
    }
  };
}

// finish(r, row) receives row r of dx. dx holds each row's part of dgamma until it is summed.
template <bool centred, class T, class Finish>
void gradient_of_rows(const NormRows& rows, const T* dy, const T* x, const KernelPointers& p,
                      double epsilon, kernels::RowScale<T>* by, T* dx, const Finish& finish) {
  const std::int64_t n = rows.columns;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    by[r] = kernels::row_scale<centred>(x + r * n, n, static_cast<T>(epsilon));
    kernels::scale_product(dy + r * n, x + r * n, n, by[r], dx + r * n);
  }
  kernels::column_sums(dx, rows.count, n, p.output<T>(1), 0, n);
  if (centred) kernels::column_sums(dy, rows.count, n, p.output<T>(2), 0, n);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    kernels::row_gradient<centred>(dy + r * n, x + r * n, n, by[r], p.input<T>(2), dx + r * n);
    finish(r, dx + r * n);
  }
}

// Inputs are dy, rows, gamma, and perhaps a tensor that is added to dx. The last output may be dx
// of the type of dy.
template <bool centred>
KernelRun norm_gradient_of_half(KernelPlan& plan) {
  const NormRows rows(plan.input(1).shape);
  const std::int64_t elements = rows.count * rows.columns;
  const double epsilon = plan.options<RowNormOptions<centred>>().epsilon;
  const kernels::StoredElements<float> of_dy(plan.input(0).dtype), of_rows(plan.dtype());
  plan.workspace((2 * rows.count + 3 * elements + rows.columns) * kFloatBytes);
  constexpr std::size_t kNarrow = 1 + row_norm_factors(centred);
  return [=, n = rows.columns](const KernelPointers& p) {
    auto* const by = reinterpret_cast<kernels::RowScale<float>*>(p.workspace());
    auto* const dy = reinterpret_cast<float*>(by + rows.count);
    float *const x = dy + elements, *const dx = x + elements, *const other = dx + elements;
    of_dy.load(p.input<void>(0), 0, elements, dy);
    of_rows.load(p.input<void>(1), 0, elements, x);
    gradient_of_rows<centred, float>(rows, dy, x, p, epsilon, by, dx,
                                     [&](std::int64_t r, float* row) {
                                       of_rows.round(row, n);
                                       if (p.inputs() > 3) {
                                         of_rows.load(p.input<void>(3), r * n, n, other);
                                         add_to_row<float>(row, other, n, row);
                                       }
                                       of_rows.store(row, n, p.output<void>(), r * n);
                                       if (p.outputs() > kNarrow)
                                         of_dy.store(row, n, p.output<void>(kNarrow), r * n);
                                     });
  };
}

}  // namespace

template <bool centred>
KernelRun row_norm_on_host(KernelPlan& plan) {
  if (has_half(plan)) return norm_of_half<centred>(plan);
  const NormRows rows(plan.output().shape);
  const std::size_t gamma_at = plan.inputs() - row_norm_factors(centred);
  const double epsilon = plan.options<RowNormOptions<centred>>().epsilon;
  return typed_kernel(plan, [=, n = rows.columns]<class T>(T, const KernelPointers& p) {
    const T *const gamma = p.input<T>(gamma_at), *const beta =
                                                     centred ? p.input<T>(gamma_at + 1) : nullptr;
    for (std::int64_t r = p.begin() * rows.per_sample; r < p.end() * rows.per_sample; ++r) {
      const T* x = p.input<T>(0) + r * n;
      T* const y = p.output<T>() + r * n;
      if (gamma_at > 2) {
        add_to_row(x, p.input<T>(2), n, y);
        x = y;
      }
      if (gamma_at > 1) {
        T* const sum = p.outputs() > 1 ? p.output<T>(1) + r * n : y;
        add_to_row(x, p.input<T>(1) + r * n, n, sum);
        x = sum;
      }
      const auto by = kernels::row_scale<centred>(x, n, static_cast<T>(epsilon));
      kernels::normalise_row<centred>(x, n, by, gamma, beta, y);
    }
  });
}
template KernelRun row_norm_on_host<true>(KernelPlan& plan);
template KernelRun row_norm_on_host<false>(KernelPlan& plan);

template <bool centred>
KernelRun row_norm_gradient_on_host(KernelPlan& plan) {
  if (has_half(plan)) return norm_gradient_of_half<centred>(plan);
  const NormRows rows(plan.input(1).shape);
  plan.workspace(rows.count * 2 * static_cast<std::int64_t>(size_of(plan.dtype())));
  const double epsilon = plan.options<RowNormOptions<centred>>().epsilon;
  return typed_kernel(plan, [=, n = rows.columns]<class T>(T, const KernelPointers& p) {
    const T* const other = p.inputs() > 3 ? p.input<T>(3) : nullptr;
    gradient_of_rows<centred, T>(rows, p.input<T>(0), p.input<T>(1), p, epsilon,
                                 reinterpret_cast<kernels::RowScale<T>*>(p.workspace()),
                                 p.output<T>(), [&](std::int64_t r, T* row) {
                                   if (other) add_to_row<T>(row, other + r * n, n, row);
                                 });
  });
}
template KernelRun row_norm_gradient_on_host<true>(KernelPlan& plan);
template KernelRun row_norm_gradient_on_host<false>(KernelPlan& plan);

}  // namespace belfry
