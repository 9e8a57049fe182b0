// Products by cuBLASLt, whose matrices lie column after column: what it sees of a row-major matrix
// is the transpose, so it is asked for cT = op(b)T op(a)T.
#include "belfry/framework/cuda/gpu_kernel.h"
#include "belfry/framework/cuda/launch.h"
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
          .count = c.product(0, c.rank() - 2),
          .a = transposed(plan.input(1).shape),
          .b = transposed(plan.input(0).shape),
          .c = transposed(c),
          .transpose_a = transpose_b,
          .transpose_b = transpose_a};
}

// Sums of nothing.
struct Zeros {
  using Shared = Nothing;
  std::int64_t words;
  std::uint32_t* out;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i < words) out[i] = 0;
    });
  }
};

QueueRun prepare_matmul(KernelPlan& plan, Algorithms& algorithms) {
  if (plan.dtype() != DType::kF32 && plan.dtype() != DType::kF64) return {};
  if (plan.output().shape.elements() == 0) return [](const Pointers&, Queue&) {};
  if (plan.input(0).shape.elements() == 0)
    return [words = plan.output().bytes() / 4](const Pointers& p, Queue& queue) {
      launch(queue, Zeros{words, p.output<std::uint32_t>()}, grid_for(words));
    };
  const MatMul matmul = make_matmul(plan);
  const MatMulAlgorithm algorithm = algorithms.matmul(matmul);
  plan.workspace(algorithm.workspace_bytes);
  return [matmul, algorithm](const Pointers& p, Queue& queue) {
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
