// What `solve` and `triangular_solve` share: systems a x = b. Their ops have b as input 0, so that
// x may overwrite it, and what stands for a as input 1.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/op.h"
#include "belfry/ops/linear_algebra/matrices_impl.h"

namespace belfry {

// The tensors of a call of the builder `what`, as its op takes them: a [..., n, n] and b [..., n,
// k] of one rank, which is 3 or more.
class LinearSystem {
 public:
  LinearSystem(const char* what, Output a, Output b, At at);

  Output a, b;

  // The solution in the shape of the b that was given.
  Output given_shape(Output x) const;

 private:
  bool vectors_, single_;
};

// Shapes and shards of such an op. Leading dimensions of a and b are equal, or those of a are 1.
OutputTypes linear_system_shape(const ShapeContext& c);
Sharding linear_system_shards(const ShardContext& c);

// The gradients of b and a, if x = a^-1 b, or a^-T b. `gradient_of_b` solves the transposed system.
std::vector<Output> linear_system_gradient(const Node& node, bool transpose, Output gradient_of_b);

// The systems of a launch.
struct LinearSystems {
  explicit LinearSystems(const KernelPlan& plan)
      : matrices(plan.input(1).shape),
        per_row(plan.output().shape.product(1, plan.output().shape.rank() - 2)),
        n(matrices.n),
        k(plan.output().shape.back()),
        one_matrix(plan.input(1).shape.product(0, plan.input(1).shape.rank() - 2) == 1) {}

  SquareMatrices matrices;
  std::int64_t per_row, n, k;
  bool one_matrix;  // for all systems

  // Copies b to x unless x is in its place. Calls solve(matrix, x) for each system, where x [n, k]
  // is b and becomes the solution.
  template <class T, class Solve>
  void each(const KernelPointers& p, const Solve& solve) const {
    const T* const b = p.input<T>(0);
    T* const x = p.output<T>();
    const std::int64_t begin = p.begin() * per_row, end = p.end() * per_row;
    if (x != b) std::copy(b + begin * n * k, b + end * n * k, x + begin * n * k);
    for (std::int64_t i = begin; i < end; ++i) solve(one_matrix ? 0 : i, x + i * n * k);
  }
};

}  // namespace belfry
