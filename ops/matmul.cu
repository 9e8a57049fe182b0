// Products by cuBLASLt, whose matrices are column-major. It sees a row-major matrix as the
// transpose, so it gets the product cT = op(b)T op(a)T.
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/pitched_kernel.h"
#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/matmul_impl.h"

namespace belfry::cuda {
namespace {

ColumnMajor transposed(const Shape& matrices, std::int64_t pitch) {
  const std::int64_t rows = matrices[matrices.rank() - 2];
  return {.rows = matrices.back(), .columns = rows, .leading = pitch, .step = rows * pitch};
}

// Products along the innermost leading dimension are one call.
MatMul make_matmul(const KernelPlan& plan, const Pitches& pitches, const LeadingDimension& along) {
  const auto [transpose_a, transpose_b] = plan.options<MatMulOptions>();
  MatMul matmul{.dtype = plan.dtype(),
                .compute = plan.node().origin().tf32 && plan.dtype() == DType::kF32
                               ? Compute::kTf32
                               : Compute::kExact,
                .count = along.size,
                .a = transposed(plan.input(1).shape, pitches.input(plan, 1)),
                .b = transposed(plan.input(0).shape, pitches.input(plan, 0)),
                .c = transposed(plan.output().shape, pitches.output(plan)),
                .transpose_a = transpose_b,
                .transpose_b = transpose_a};
  if (along.size > 1) {
    matmul.a.step *= along.step_b;
    matmul.b.step *= along.step_a;
  }
  return matmul;
}

QueueRun prepare_matmul(KernelPlan& plan, Algorithms& algorithms, const Pitches& pitches) {
  if (plan.output().shape.elements() == 0) return [](const KernelPointers&, KernelQueue&) {};
  if (plan.input(0).shape.elements() == 0)  // each sum has no terms
    return [bytes = plan.output().bytes() / plan.output().shape.back() * pitches.output(plan)](
               const KernelPointers& p, KernelQueue& queue) {
      fill_zeros(queue, p.output<void>(), bytes);
    };
  std::vector<LeadingDimension> calls =
      leading_dimensions(plan.input(0).shape, plan.input(1).shape, plan.output().shape);
  LeadingDimension along;
  if (!calls.empty()) {
    along = calls.front();
    calls.erase(calls.begin());
  }
  const auto bytes = [&](const Shape& matrices, std::int64_t pitch) {
    return matrices[matrices.rank() - 2] * pitch * static_cast<std::int64_t>(size_of(plan.dtype()));
  };
  const MatMul matmul = make_matmul(plan, pitches, along);
  const MatMulAlgorithm algorithm = algorithms.matmul(matmul);
  plan.workspace(algorithm.workspace_bytes);
  return [matmul, algorithm, calls, of_a = bytes(plan.input(0).shape, pitches.input(plan, 0)),
          of_b = bytes(plan.input(1).shape, pitches.input(plan, 1)),
          of_c = along.size * bytes(plan.output().shape, pitches.output(plan))](
             const KernelPointers& p, KernelQueue& queue) {
    char* c = p.output<char>();
    each_leading(calls, calls.size(), 0, 0, [&](std::int64_t i, std::int64_t j) {
      queue.matmul({.matmul = matmul,
                    .algorithm = algorithm,
                    .a = p.input<char>(1) + j * of_b,
                    .b = p.input<char>(0) + i * of_a,
                    .c = c,
                    .workspace = p.workspace()});
      c += of_c;
    });
  };
}

}  // namespace

const PitchedKernel kernels_of_ops[] = {
    {kMatMul, prepare_matmul},
    {kMatMulTransposeA, prepare_matmul},
    {kBroadcastMatMul, prepare_matmul},
};

}  // namespace belfry::cuda
