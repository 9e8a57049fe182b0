// Products by cuBLASLt, whose matrices are column-major. It sees a row-major matrix as the
// transpose, so it gets the product cT = op(b)T op(a)T.
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/ops/matmul.h"

namespace belfry::cuda {
namespace {

ColumnMajor transposed(const Shape& matrices) {
  const std::int64_t rows = matrices[matrices.rank() - 2], columns = matrices.back();
  return {.rows = columns, .columns = rows, .leading = columns, .step = rows * columns};
}

MatMul make_matmul(const KernelPlan& plan) {
  const auto [transpose_a, transpose_b] = plan.options<MatMulOptions>();
  const Shape& c = plan.output().shape;
  return {.dtype = plan.dtype(),
          .compute = plan.node().origin().tf32 && plan.dtype() == DType::kF32 ? Compute::kTf32
                                                                              : Compute::kExact,
          .count = c.product(0, c.rank() - 2),
          .a = transposed(plan.input(1).shape),
          .b = transposed(plan.input(0).shape),
          .c = transposed(c),
          .transpose_a = transpose_b,
          .transpose_b = transpose_a};
}

QueueRun prepare_matmul(KernelPlan& plan, Algorithms& algorithms) {
  if (plan.output().shape.elements() == 0) return [](const KernelPointers&, KernelQueue&) {};
  if (plan.input(0).shape.elements() == 0)  // each sum has no terms
    return [bytes = plan.output().bytes()](const KernelPointers& p, KernelQueue& queue) {
      fill_zeros(queue, p.output<void>(), bytes);
    };
  const MatMul matmul = make_matmul(plan);
  const MatMulAlgorithm algorithm = algorithms.matmul(matmul);
  plan.workspace(algorithm.workspace_bytes);
  return [matmul, algorithm](const KernelPointers& p, KernelQueue& queue) {
    queue.matmul({.matmul = matmul,
                  .algorithm = algorithm,
                  .a = p.input<void>(1),
                  .b = p.input<void>(0),
                  .c = p.output<void>(),
                  .workspace = p.workspace()});
  };
}

}  // namespace

const GpuKernel matmul_rows(kMatMul, prepare_matmul);
const GpuKernel matmul_transpose_a(kMatMulTransposeA, prepare_matmul);

}  // namespace belfry::cuda
