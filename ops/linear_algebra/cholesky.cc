#include "belfry/ops/linear_algebra/cholesky.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/on_host.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/linear_algebra/lapack_impl.h"
#include "belfry/ops/linear_algebra/matrices_impl.h"
#include "belfry/ops/linear_algebra/triangular_solve.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/shapes/move_axes.h"
#include "belfry/ops/shapes/triangle.h"

namespace belfry {
namespace {

OutputTypes cholesky_shape(const ShapeContext& c) {
  require_square(c, 0);
  return {c.type(0)};
}

// dl = l h, where h is the lower triangle of l^-1 da l^-T with half its diagonal. So the gradient
// of a is l^-T s l^-1, where s is half of l^T dl below and above the diagonal alike.
std::vector<Output> cholesky_gradient(const Node& node, std::span<const Output> grads) {
  const Output l = node.output();
  const Output product = matmul(l, grads[0], {.transpose_a = true});
  const Output s = 0.5 * (tril(product) + swapaxes(tril(product, -1), -1, -2));
  const Output left = triangular_solve(l, s, {.transpose = true});
  return {triangular_solve(l, swapaxes(left, -1, -2), {.transpose = true})};
}

// Each returns 0, or the order of the first leading minor that is not positive.
struct PlainCholesky {
  template <class T>
  static std::int64_t factorise(std::int64_t n, T* a) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        T rest = a[i * n + j];
        for (std::int64_t k = 0; k < j; ++k) rest -= a[i * n + k] * a[j * n + k];
        if (i == j && !(rest > 0)) return i + 1;
        a[i * n + j] = i == j ? std::sqrt(rest) : rest / a[j * n + j];
      }
    return 0;
  }
};

#if BELFRY_LAPACK
struct LapackCholesky {
  template <class T>
  static std::int64_t factorise(std::int64_t n, T* a) {
    const int size = static_cast<int>(n);
    int minor = 0;
    if (n > 0) Lapack<T>::potrf("U", &size, a, &size, &minor, 1);
    return minor;
  }
};
#endif

template <class T>
void copy_lower_triangle(std::int64_t n, const T* a, T* l) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (l != a) std::copy_n(a + i * n, i + 1, l + i * n);
    std::fill_n(l + i * n + i + 1, n - i - 1, T(0));
  }
}

template <class Method>
KernelRun cholesky_kernel(KernelPlan& plan) {
  return typed_kernel(plan, [all = SquareMatrices(plan.output().shape),
                             &node = plan.node()]<class T>(T, const KernelPointers& p) {
    all.each(p, [&](std::int64_t i) {
      T* const l = p.output<T>() + i * all.elements();
      copy_lower_triangle(all.n, p.input<T>(0) + i * all.elements(), l);
      const std::int64_t minor = Method::factorise(all.n, l);
      if (minor == 0) return;
      if (!spread_nan(l, all.elements()))
        refuse_matrix(node, all.number(p, i),
                      cat("is not positive definite: its first ", minor,
                          " rows and columns have no positive determinant"));
      copy_lower_triangle(all.n, l, l);
    });
  });
}

}  // namespace

const Op kCholesky {
  .name = "Cholesky", .inputs = 1, .shape = cholesky_shape, .gradient = cholesky_gradient,
  .split = WorkSplit::kRows, .heavy = true, .shards = by_rows<1>, .in_place = InPlace::kFirst,
#if BELFRY_LAPACK
  .cpu = cholesky_kernel<LapackCholesky>,
#endif
  .reference = cholesky_kernel<PlainCholesky>, .cpu_only = kByLapack, .autocast = Autocast::kFull
};

Output cholesky(Output a, At at) {
  require(a.shape().rank() >= 2, "cholesky (", at.site, "): matrices [..., n, n] are needed, not ",
          a.type());
  const auto factors = [&](Output x) { return add_on_host(kCholesky, {x}, at).output(); };
  if (a.shape().rank() > 2) return factors(a);
  return squeeze(factors(expand_dims(a, 0, at.site)), {0}, at.site);
}

Output cholesky_solve(Output l, Output b, At at) {
  return triangular_solve(l, triangular_solve(l, b, {}, at.site), {.transpose = true}, at);
}

}  // namespace belfry
