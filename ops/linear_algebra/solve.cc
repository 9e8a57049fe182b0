#include "belfry/ops/linear_algebra/solve.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/on_host.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/linear_algebra/linear_system_impl.h"
#include "belfry/ops/linear_algebra/substitution_impl.h"

namespace belfry {
namespace {

OutputTypes lu_factor_shape(const ShapeContext& c) {
  require_square(c, 0);
  std::vector<std::int64_t> pivots;
  for (std::size_t axis = 0; axis + 1 < c.input(0).rank(); ++axis)
    pivots.push_back(c.input(0)[axis]);
  return {c.type(0), {Shape(pivots), DType::kI32}};
}

OutputTypes lu_solve_shape(const ShapeContext& c) {
  c.require(c.dtype(2) == DType::kI32 && c.input(2).rank() + 1 == c.input(1).rank(),
            "the pivots of ", c.type(1), " cannot be ", c.type(2));
  return linear_system_shape(c);
}

Output add_lu_solve(Output b, const LuFactors& a, LuSolveOptions options, At at) {
  return add_on_host(kLuSolve, {b, a.factors, a.pivots}, at, NodeOptions(options)).output();
}

std::vector<Output> lu_solve_gradient(const Node& node, std::span<const Output> grads) {
  const bool transpose = node.options<LuSolveOptions>().transpose;
  const LuFactors a{node.input(1), node.input(2)};
  std::vector<Output> result = linear_system_gradient(
      node, transpose, add_lu_solve(grads[0], a, {.transpose = !transpose}, {}));
  result.emplace_back();
  return result;
}

// LuSolve gives the factors the gradient of the matrix itself.
std::vector<Output> lu_factor_gradient(const Node&, std::span<const Output> grads) {
  return {grads[0]};
}

// Each returns 0, or the number of the first pivot that is 0, counted from 1.
struct PlainFactors {
  template <class T>
  static std::int64_t make(std::int64_t n, T* a, std::int32_t* pivots) {
    std::int64_t zero = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      T* const row = a + i * n;
      const std::int64_t pivot =
          std::max_element(row + i, row + n, [](T x, T y) { return std::abs(x) < std::abs(y); }) -
          row;
      pivots[i] = static_cast<std::int32_t>(pivot + 1);
      for (std::int64_t r = 0; r < n; ++r) std::swap(a[r * n + i], a[r * n + pivot]);
      if (row[i] == 0) {
        if (zero == 0) zero = i + 1;
        continue;
      }
      for (std::int64_t c = i + 1; c < n; ++c) row[c] /= row[i];
      for (std::int64_t r = i + 1; r < n; ++r)
        for (std::int64_t c = i + 1; c < n; ++c) a[r * n + c] -= a[r * n + i] * row[c];
    }
    return zero;
  }
};

#if BELFRY_LAPACK
struct LapackFactors {
  template <class T>
  static std::int64_t make(std::int64_t n, T* a, std::int32_t* pivots) {
    const int size = static_cast<int>(n);
    int zero = 0;
    if (n > 0) Lapack<T>::getrf(&size, &size, a, &size, pivots, &zero);
    return zero;
  }
};
#endif

template <class Factors>
KernelRun lu_factor_kernel(KernelPlan& plan) {
  return typed_kernel(plan, [all = SquareMatrices(plan.output().shape),
                             &node = plan.node()]<class T>(T, const KernelPointers& p) {
    all.each(p, [&](std::int64_t i) {
      const T* const a = p.input<T>(0) + i * all.elements();
      T* const factors = p.output<T>(0) + i * all.elements();
      if (factors != a) std::copy_n(a, all.elements(), factors);
      const std::int64_t zero =
          Factors::make(all.n, factors, p.output<std::int32_t>(1) + i * all.n);
      if (zero > 0 && !spread_nan(factors, all.elements()))
        refuse_matrix(node, all.number(p, i),
                      cat("is singular: pivot ", zero, " of ", all.n, " is 0"));
    });
  });
}

// Exchanges rows of x [n, k] as the pivots say: in their order, or back.
template <class T>
void exchange_rows(const std::int32_t* pivots, bool back, std::int64_t n, std::int64_t k, T* x) {
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = back ? n - 1 - step : step, other = pivots[i] - 1;
    if (other != i) std::swap_ranges(x + i * k, x + (i + 1) * k, x + other * k);
  }
}

// (L U P) x = b, or its transpose.
template <class Substitution>
KernelRun lu_solve_kernel(KernelPlan& plan) {
  return typed_kernel(plan, [all = LinearSystems(plan),
                             transpose = plan.options<LuSolveOptions>().transpose]<class T>(
                                T, const KernelPointers& p) {
    const Triangle lower{.transpose = transpose};
    const Triangle upper{.upper = true, .transpose = transpose, .unit_diagonal = true};
    all.each<T>(p, [&](std::int64_t matrix, T* x) {
      const T* const factors = p.input<T>(1) + matrix * all.matrices.elements();
      const std::int32_t* const pivots = p.input<std::int32_t>(2) + matrix * all.n;
      if (transpose) exchange_rows(pivots, false, all.n, all.k, x);
      for (const Triangle& triangle : {transpose ? upper : lower, transpose ? lower : upper})
        Substitution::run(triangle, all.n, all.k, factors, x);
      if (!transpose) exchange_rows(pivots, true, all.n, all.k, x);
    });
  });
}

}  // namespace

const Op kLuFactor {
  .name = "LuFactor", .inputs = 1, .shape = lu_factor_shape, .gradient = lu_factor_gradient,
  .split = WorkSplit::kRows, .heavy = true, .shards = by_rows<1>, .in_place = InPlace::kFirst,
#if BELFRY_LAPACK
  .cpu = lu_factor_kernel<LapackFactors>,
#endif
  .reference = lu_factor_kernel<PlainFactors>, .cpu_only = kByLapack, .autocast = Autocast::kFull
};

const Op kLuSolve {
  .name = "LuSolve", .inputs = 3, .shape = lu_solve_shape, .gradient = lu_solve_gradient,
  .split = WorkSplit::kRows, .heavy = true, .shards = linear_system_shards,
  .in_place = InPlace::kFirst,
#if BELFRY_LAPACK
  .cpu = lu_solve_kernel<LapackSubstitution>,
#endif
  .reference = lu_solve_kernel<PlainSubstitution>, .cpu_only = kByLapack,
  .autocast = Autocast::kFull
};
const StoredOptions<LuSolveOptions> kStoredLuSolve(kLuSolve);

LuFactors lu_factor(Output a, At at) {
  const SiteScope site(a.graph(), at.site);
  const bool single = a.shape().rank() == 2;
  const Node& lu = add_on_host(kLuFactor, {single ? expand_dims(a, 0) : a}, at);
  if (single) return {squeeze(lu.output(0), {0}), squeeze(lu.output(1), {0})};
  return {lu.output(0), lu.output(1)};
}

Output lu_solve(const LuFactors& a, Output b, At at) {
  const SiteScope site(b.graph(), at.site);
  const LinearSystem equations("lu_solve", a.factors, b, at);
  Output pivots = a.pivots;
  while (pivots.shape().rank() + 1 < equations.a.shape().rank()) pivots = expand_dims(pivots, 0);
  return equations.given_shape(add_lu_solve(equations.b, {equations.a, pivots}, {}, at));
}

Output solve(Output a, Output b, At at) { return lu_solve(lu_factor(a, at.site), b, at); }

}  // namespace belfry
