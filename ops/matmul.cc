#include "belfry/ops/matmul.h"

#include <memory>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/gemm.h"
#include "belfry/ops/kernels/onednn_gemm.h"

namespace belfry {
namespace {

// The product shape of matrices with equal leading dimensions.
OutputTypes matmul_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  const Shape &a = c.input(0), &b = c.input(1);
  const auto& options = c.options<MatMulOptions>();
  const std::size_t rank = a.rank();
  c.require(rank >= 2 && b.rank() == rank, "needs two tensors of one rank, 2 or more, not ", a,
            " x ", b);
  Shape out = a;
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    c.require(a[i] == b[i] || a[i] == kUnknownSize || b[i] == kUnknownSize, "leading dimension ", i,
              " differs: ", a, " x ", b);
    out[i] = a[i] == kUnknownSize ? b[i] : a[i];
  }
  const std::size_t row = rank - 2, column = rank - 1;
  const std::int64_t k_a = a[options.transpose_a ? row : column];
  const std::int64_t k_b = b[options.transpose_b ? column : row];
  c.require(k_a == k_b || k_a == kUnknownSize || k_b == kUnknownSize,
            "inner dimensions differ: ", a, options.transpose_a ? " (transposed)" : "", " x ", b,
            options.transpose_b ? " (transposed)" : "");
  out[row] = a[options.transpose_a ? column : row];
  out[column] = b[options.transpose_b ? row : column];
  return {out};
}

OutputTypes matmul_rows_shape(const ShapeContext& c) {
  c.require(c.input(0).rank() != 2 || !c.options<MatMulOptions>().transpose_a,
            "matrices with transpose_a are the op MatMulTransposeA; build it by matmul()");
  return matmul_shape(c);
}

OutputTypes matmul_transpose_a_shape(const ShapeContext& c) {
  c.require_rank(0, 2);
  return matmul_shape(c);
}

std::vector<Output> matmul_gradient(const Node& node, std::span<const Output> grads) {
  const auto [ta, tb] = node.options<MatMulOptions>();
  const Output a = node.input(0), b = node.input(1), g = grads[0];
  return {ta ? matmul(b, g, {.transpose_a = tb, .transpose_b = true})
             : matmul(g, b, {.transpose_b = !tb}),
          tb ? matmul(g, a, {.transpose_a = true, .transpose_b = ta})
             : matmul(a, g, {.transpose_a = !ta})};
}

Sharding matmul_shards(const ShardContext& c) {
  return row_shards(c, c.inputs[0].shape.rank() == 2 ? 1 : 3);
}

// The op sums over the rows of both inputs.
Sharding transpose_a_shards(const ShardContext& c) {
  return c.node.options<MatMulOptions>().transpose_b ? Sharding() : sum_shards(c, 3);
}

// Equal-sized products one after the other. Steps are in elements.
struct Products {
  kernels::GemmShape gemm;
  std::int64_t count = 1;
  std::int64_t step_a = 0, step_b = 0, step_c = 0;
};

Products products_of(const KernelPlan& plan) {
  const auto [ta, tb] = plan.options<MatMulOptions>();
  const Shape &a = plan.input(0).shape, &b = plan.input(1).shape, &c = plan.output().shape;
  const std::size_t row = c.rank() - 2, column = c.rank() - 1;
  const kernels::GemmShape gemm{.m = c[row],
                                .n = c[column],
                                .k = a[ta ? row : column],
                                .transpose_a = ta,
                                .transpose_b = tb,
                                .row_a = a[column],
                                .row_b = b[column]};
  return {.gemm = gemm,
          .count = c.product(0, row),
          .step_a = gemm.m * gemm.k,
          .step_b = gemm.k * gemm.n,
          .step_c = gemm.m * gemm.n};
}

// multiply(a, b, c, workspace) computes one product.
template <class T, class Multiply>
KernelRun each_product(const Products& s, Multiply multiply) {
  return [s, multiply](const KernelPointers& p) {
    const T* a = p.input<T>(0);
    const T* b = p.input<T>(1);
    T* c = p.output<T>();
    for (std::int64_t i = 0; i < s.count; ++i)
      multiply(a + i * s.step_a, b + i * s.step_b, c + i * s.step_c, p.workspace());
  };
}

// Below this many multiplications a library call costs more than our own loops.
constexpr std::int64_t kTiny = 16 * 16 * 16;

KernelRun matmul_cpu(KernelPlan& plan) {
  const Products s = products_of(plan);
  [[maybe_unused]] const std::int64_t work = s.gemm.m * s.gemm.n * s.gemm.k;
#if BELFRY_ONEDNN
  if (plan.dtype() == DType::kF32 && work > kTiny) {
    auto library = std::make_shared<kernels::OneDnnGemm>(plan, s.gemm);
    return each_product<float>(
        s, [library](const float* a, const float* b, float* c, std::byte* workspace) {
          library->run(a, b, c, workspace);
        });
  }
#endif
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return each_product<T>(s, [gemm_shape = s.gemm](const T* a, const T* b, T* c, std::byte*) {
      kernels::gemm(gemm_shape, a, b, c);
    });
  });
}

KernelRun matmul_reference(KernelPlan& plan) {
  const Products s = products_of(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return each_product<T>(s, [gemm_shape = s.gemm](const T* a, const T* b, T* c, std::byte*) {
      kernels::gemm_reference(gemm_shape, a, b, c);
    });
  });
}

}  // namespace

const Op kMatMul{.name = "MatMul",
                 .inputs = 2,
                 .shape = matmul_rows_shape,
                 .gradient = matmul_gradient,
                 .heavy = true,
                 .shards = matmul_shards,
                 .cpu = matmul_cpu,
                 .reference = matmul_reference,
                 .autocast = Autocast::kCompute};

const Op kMatMulTransposeA{.name = "MatMulTransposeA",
                           .inputs = 2,
                           .shape = matmul_transpose_a_shape,
                           .gradient = matmul_gradient,
                           .heavy = true,
                           .shards = transpose_a_shards,
                           .cpu = matmul_cpu,
                           .reference = matmul_reference,
                           .autocast = Autocast::kCompute};

Output matmul(Output a, Output b, MatMulOptions options, At at) {
  const bool reduces = a.shape().rank() == 2 && options.transpose_a;
  return a.graph()
      .add(reduces ? kMatMulTransposeA : kMatMul, {a, b}, at, NodeOptions(options))
      .output();
}

}  // namespace belfry
