#include "belfry/ops/linear_algebra/triangular_solve.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/on_host.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/linear_algebra/linear_system_impl.h"
#include "belfry/ops/linear_algebra/substitution_impl.h"
#include "belfry/ops/shapes/triangle.h"

namespace belfry {
namespace {

Output triangular_solve_of(Output a, Output b, TriangularSolveOptions options, At at) {
  return add_on_host(kTriangularSolve, {b, a}, at, NodeOptions(options)).output();
}

std::vector<Output> triangular_solve_gradient(const Node& node, std::span<const Output> grads) {
  const auto [upper, transpose] = node.options<TriangularSolveOptions>();
  const Output of_b =
      triangular_solve_of(node.input(1), grads[0], {.upper = upper, .transpose = !transpose}, {});
  std::vector<Output> result = linear_system_gradient(node, transpose, of_b);
  result[1] = upper ? triu(result[1]) : tril(result[1]);
  return result;
}

// Whether one matrix serves the whole batch.
bool is_one_matrix(const Node& node) {
  const Shape& a = node.input(1).shape();
  return a.product(0, a.rank() - 2) == 1;
}

template <class Substitution>
KernelRun triangular_solve_kernel(KernelPlan& plan) {
  const auto [upper, transpose] = plan.options<TriangularSolveOptions>();
  return typed_kernel(
      plan, [triangle = Triangle{.upper = upper, .transpose = transpose}, all = LinearSystems(plan),
             &node = plan.node()]<class T>(T, const KernelPointers& p) {
        all.each<T>(p, [&](std::int64_t matrix, T* x) {
          const T* const a = p.input<T>(1) + matrix * all.matrices.elements();
          for (std::int64_t i = 0; i < all.n; ++i)
            if (a[i * all.n + i] == 0)
              refuse_matrix(node, is_one_matrix(node) ? 0 : all.matrices.number(p, matrix),
                            cat("is singular: element ", i, " of its diagonal is 0"));
          Substitution::run(triangle, all.n, all.k, a, x);
        });
      });
}

}  // namespace

const Op kTriangularSolve {
  .name = "TriangularSolve", .inputs = 2, .shape = linear_system_shape,
  .gradient = triangular_solve_gradient, .split = WorkSplit::kRows, .heavy = true,
  .shards = linear_system_shards, .in_place = InPlace::kFirst,
#if BELFRY_LAPACK
  .cpu = triangular_solve_kernel<LapackSubstitution>,
#endif
  .reference = triangular_solve_kernel<PlainSubstitution>, .cpu_only = kByLapack,
  .autocast = Autocast::kFull
};
const StoredOptions<TriangularSolveOptions> kStoredTriangularSolve(kTriangularSolve);

Output triangular_solve(Output a, Output b, TriangularSolveOptions options, At at) {
  const SiteScope site(a.graph(), at.site);
  const LinearSystem equations("triangular_solve", a, b, at);
  return equations.given_shape(triangular_solve_of(equations.a, equations.b, options, at));
}

}  // namespace belfry
