#include "belfry/ops/bias_activation.h"

#include <algorithm>
#include <functional>

#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/kernels/column_sums.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/reference_of_part.h"
#include "belfry/ops/kernels/stored_elements.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/silu.h"

namespace belfry {
namespace {

OutputTypes bias_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require_same_dtype();
  c.require(c.input(0).rank() >= 2 && c.input(1).compatible(Shape{c.input(0).back()}),
            "needs rows and a bias for each column, not ", c.input(0), " and ", c.input(1));
  return {c.type(0), c.type(0)};
}

OutputTypes bias_grad_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require_same_dtype();
  c.require(c.input(0).rank() >= 2 && c.input(0).compatible(c.input(1)),
            "needs two tensors of rows, not ", c.input(0), " and ", c.input(1));
  return {c.type(0), Shape{c.input(0).back()}};
}

// [rows, columns]
struct BiasedRows {
  explicit BiasedRows(const Shape& x)
      : columns(x.back()),
        count(x.product(0, x.rank() - 1)),
        per_sample(x.product(1, x.rank() - 1)) {}
  std::int64_t columns, count, per_sample;
};

// Makes both passes over a block while it is in cache.
template <class F>
KernelRun bias_then(KernelPlan& plan) {
  if (is_half(plan.dtype())) return {};
  const Shape& x = plan.output().shape;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [broadcast = kernels::Broadcast(x.dims(), plan.input(1).shape.dims()),
            row = x.product(1, x.rank())](const KernelPointers& p) {
      constexpr std::int64_t kBlock = 32768;
      T *const y = p.output<T>(), *const sum = p.outputs() > 1 ? p.output<T>(1) : y;
      for (std::int64_t i = p.begin() * row, end = p.end() * row; i < end; i += kBlock) {
        const std::int64_t until = std::min(i + kBlock, end);
        kernels::map_broadcast(functors::Add{}, broadcast, i, until, sum, p.input<T>(0),
                               p.input<T>(1));
        kernels::map(F{}, i, until, y, static_cast<const T*>(sum));
      }
    };
  });
}

template <class F>
KernelRun gradient_then_sum(KernelPlan& plan) {
  if (is_half(plan.dtype())) return {};
  const BiasedRows rows(plan.output().shape);
  plan.workspace(kernels::column_sums_scratch(rows.count, rows.columns) *
                 static_cast<std::int64_t>(size_of(plan.dtype())));
  return typed_kernel(plan, [rows]<class T>(T, const KernelPointers& p) {
    T* const g = p.output<T>();
    const auto make = [&](std::int64_t begin, std::int64_t end) {
      kernels::map(F{}, begin * rows.columns, end * rows.columns, g, p.input<T>(0), p.input<T>(1));
    };
    // By reference, because a copy would take memory in each step.
    kernels::column_sums_by_blocks(g, rows.count, rows.columns, std::ref(make), p.output<T>(1),
                                   reinterpret_cast<T*>(p.workspace()));
  });
}

// Runs the parts' reference kernels row by row, and rounds 16-bit types between them.
template <const Op& activation>
KernelRun bias_reference(KernelPlan& plan) {
  const BiasedRows rows(plan.output().shape);
  return kernels::visit_computed(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const TensorType row{Shape{rows.columns}, dtype_of<T>()};
    plan.workspace(2 * row.bytes());
    return [rows, n = rows.columns, of = kernels::StoredElements<T>(plan.dtype()),
            activate = reference_of_part(activation, plan, {row}, {row})](const KernelPointers& p) {
      T *const x = reinterpret_cast<T*>(p.workspace()), *const y = x + n;
      void *const from[] = {x}, *const to[] = {y};
      for (std::int64_t r = p.begin() * rows.per_sample; r < p.end() * rows.per_sample; ++r) {
        of.load(p.input<void>(0), r * n, n, x);
        of.load(p.input<void>(1), 0, n, y);
        for (std::int64_t i = 0; i < n; ++i) x[i] += y[i];
        of.round(x, n);
        if (p.outputs() > 1) of.store(x, n, p.output<void>(1), r * n);
        activate(KernelPointers(from, to, nullptr, {0, n}, p.step()));
        of.store(y, n, p.output<void>(), r * n);
      }
    };
  });
}

template <const Op& gradient>
KernelRun bias_grad_reference(KernelPlan& plan) {
  const BiasedRows rows(plan.output().shape);
  return kernels::visit_computed(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const TensorType row{Shape{rows.columns}, dtype_of<T>()};
    plan.workspace(rows.columns * 8 + 3 * row.bytes());
    return [rows, n = rows.columns, of = kernels::StoredElements<T>(plan.dtype()),
            differentiate =
                reference_of_part(gradient, plan, {row, row}, {row})](const KernelPointers& p) {
      auto* const sums = reinterpret_cast<double*>(p.workspace());
      T *const dy = reinterpret_cast<T*>(sums + n), *const read = dy + n, *const g = read + n;
      void *const from[] = {dy, read}, *const to[] = {g};
      std::fill_n(sums, n, 0.0);
      for (std::int64_t r = 0; r < rows.count; ++r) {
        of.load(p.input<void>(0), r * n, n, dy);
        of.load(p.input<void>(1), r * n, n, read);
        differentiate(KernelPointers(from, to, nullptr, {0, n}, p.step()));
        of.round(g, n);
        of.store(g, n, p.output<void>(), r * n);
        for (std::int64_t i = 0; i < n; ++i) sums[i] += g[i];
      }
      for (std::int64_t i = 0; i < n; ++i) g[i] = static_cast<T>(sums[i]);
      of.store(g, n, p.output<void>(1), 0);
    };
  });
}

template <CpuKernel exact, CpuKernel by_tanh>
KernelRun of_gelu_form(KernelPlan& plan) {
  return plan.options<GeluOptions>().form == GeluForm::kExact ? exact(plan) : by_tanh(plan);
}

// The ops differ only in the arguments.
Op bias_op(const char* name, CpuKernel cpu, CpuKernel reference) {
  return {.name = name,
          .inputs = 2,
          .shape = bias_shape,
          .no_gradient = kMadeByPlans,
          .split = WorkSplit::kRows,
          .in_place = InPlace::kFirst,
          .cpu = cpu,
          .reference = reference,
          .half = true};
}

Op bias_grad_op(const char* name, CpuKernel cpu, CpuKernel reference) {
  return {.name = name,
          .inputs = 2,
          .shape = bias_grad_shape,
          .no_gradient = kMadeByPlans,
          .in_place = InPlace::kAny,
          .cpu = cpu,
          .reference = reference,
          .half = true};
}

}  // namespace

const Op kBiasRelu = bias_op("BiasRelu", bias_then<functors::Relu>, bias_reference<kRelu>);
const Op kBiasGelu =
    bias_op("BiasGelu", of_gelu_form<bias_then<functors::Gelu>, bias_then<functors::GeluTanh>>,
            bias_reference<kGelu>);
const Op kBiasSilu = bias_op("BiasSilu", bias_then<functors::Silu>, bias_reference<kSilu>);

const Op kBiasReluGrad = bias_grad_op("BiasReluGrad", gradient_then_sum<functors::ReluGrad>,
                                      bias_grad_reference<kReluGrad>);
const Op kBiasGeluGrad = bias_grad_op(
    "BiasGeluGrad",
    of_gelu_form<gradient_then_sum<functors::GeluGrad>, gradient_then_sum<functors::GeluTanhGrad>>,
    bias_grad_reference<kGeluGrad>);
const Op kBiasSiluGrad = bias_grad_op("BiasSiluGrad", gradient_then_sum<functors::SiluGrad>,
                                      bias_grad_reference<kSiluGrad>);

}  // namespace belfry
