// Descriptors of cuBLASLt, which need no GPU.
#include "belfry/framework/cuda/runtime/cublas_lt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/device/gpus.h"
#include "belfry/ops/matmul.h"
#include "belfry/tests/cuda/node_kernels.h"

namespace belfry::cuda {
namespace cublas_lt_test {

using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

const Where kHere{.device = "gpu:0"};

template <class T>
T read(const MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t which) {
  T value{};
  std::size_t bytes = 0;
  BELFRY_GPU_CALL(
      cublasLtMatrixLayoutGetAttribute(layout.get(), which, &value, sizeof value, &bytes), kHere);
  EXPECT_EQ(bytes, sizeof value);
  return value;
}

template <class T>
T read(const MatMulDescriptor& product, cublasLtMatmulDescAttributes_t which) {
  T value{};
  std::size_t bytes = 0;
  BELFRY_GPU_CALL(
      cublasLtMatmulDescGetAttribute(product.get(), which, &value, sizeof value, &bytes), kHere);
  EXPECT_EQ(bytes, sizeof value);
  return value;
}

// The row-major matrix [rows, columns] that a layout describes; cuBLASLt sees its transpose.
struct RowMajor {
  std::int64_t rows, columns;
  bool operator==(const RowMajor&) const = default;
};
RowMajor row_major(const MatrixLayout& layout) {
  EXPECT_EQ(read<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER), CUBLASLT_ORDER_COL);
  const auto columns = read<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS);
  EXPECT_EQ(read<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD),
            static_cast<std::int64_t>(columns));
  return {static_cast<std::int64_t>(read<std::uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS)),
          static_cast<std::int64_t>(columns)};
}

TEST(CublasLtMatMul, HasTheShapesOfOurs) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const std::int64_t m : {1, 3, 64})
        for (const std::int64_t n : {1, 5})
          for (const std::int64_t k : {1, 7, 32}) {
            Graph graph;
            const Shape a = transpose_a ? Shape{4, k, m} : Shape{4, m, k};
            const Shape b = transpose_b ? Shape{4, n, k} : Shape{4, k, n};
            const Output product =
                matmul(placeholder(graph, "a", DType::kF32, a),
                       placeholder(graph, "b", DType::kF32, b), {transpose_a, transpose_b});
            NotedAlgorithms asked;
            NodeKernel(product.node(), asked);
            ASSERT_EQ(asked.matmuls.size(), 1u);
            const MatMulDescriptors of = describe(asked.matmuls[0], kHere);
            // bT aT is (ab)T: the first matrix is b.
            EXPECT_EQ(row_major(of.a), (RowMajor{b[1], b[2]}));
            EXPECT_EQ(row_major(of.b), (RowMajor{a[1], a[2]}));
            EXPECT_EQ(row_major(of.c), (RowMajor{product.shape()[1], product.shape()[2]}));
            const auto step = [](const MatrixLayout& layout) {
              EXPECT_EQ(read<std::int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 4);
              return read<std::int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
            };
            EXPECT_EQ(step(of.a), k * n);
            EXPECT_EQ(step(of.b), m * k);
            EXPECT_EQ(step(of.c), m * n);
            const auto transposed = [&](cublasLtMatmulDescAttributes_t which) {
              return read<std::int32_t>(of.product, which) == CUBLAS_OP_T;
            };
            EXPECT_EQ(transposed(CUBLASLT_MATMUL_DESC_TRANSA), transpose_b);
            EXPECT_EQ(transposed(CUBLASLT_MATMUL_DESC_TRANSB), transpose_a);
          }
}

MatMul some_matmul(DType dtype = DType::kF32, Compute compute = Compute::kExact) {
  return {.dtype = dtype,
          .compute = compute,
          .a = {.rows = 4, .columns = 7, .leading = 4, .step = 28},
          .b = {.rows = 7, .columns = 5, .leading = 7, .step = 35},
          .c = {.rows = 4, .columns = 5, .leading = 4, .step = 20}};
}

TEST(CublasLtMatMul, MultipliesF32ExactlyUnlessTf32IsAskedFor) {
  const auto compute = [](DType dtype, Compute how) {
    return read<std::int32_t>(describe(some_matmul(dtype, how), kHere).product,
                              CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  };
  EXPECT_EQ(compute(DType::kF32, Compute::kExact), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(compute(DType::kF32, Compute::kTf32), CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(compute(DType::kF64, Compute::kExact), CUBLAS_COMPUTE_64F);
  EXPECT_EQ(compute(DType::kF16, Compute::kExact), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(compute(DType::kBF16, Compute::kTf32), CUBLAS_COMPUTE_32F);
}

TEST(CublasLtMatMul, HasItsTypeAndScalesInThatOfSums) {
  const std::tuple<DType, cudaDataType_t, cudaDataType_t> types[] = {
      {DType::kF32, CUDA_R_32F, CUDA_R_32F},
      {DType::kF64, CUDA_R_64F, CUDA_R_64F},
      {DType::kF16, CUDA_R_16F, CUDA_R_32F},
      {DType::kBF16, CUDA_R_16BF, CUDA_R_32F}};
  for (const auto& [dtype, element, scale] : types) {
    const MatMulDescriptors of = describe(some_matmul(dtype), kHere);
    for (const MatrixLayout* matrix : {&of.a, &of.b, &of.c})
      EXPECT_EQ(read<std::uint32_t>(*matrix, CUBLASLT_MATRIX_LAYOUT_TYPE), element);
    EXPECT_EQ(read<std::int32_t>(of.product, CUBLASLT_MATMUL_DESC_SCALE_TYPE), scale);
  }
}

template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

TEST(CublasLtMatMul, ThatCannotBeIsRefused) {
  MatMul matmul = some_matmul();
  matmul.count = std::int64_t{1} << 31;
  EXPECT_EQ(error_of([&] { describe(matmul, kHere); }),
            "a product of 2147483648 matrices is more than cuBLASLt computes, on gpu:0");
  EXPECT_EQ(error_of([] { describe(some_matmul(DType::kI64), kHere); }),
            "cuBLASLt computes nothing in i64");
}

TEST(CublasLt, WithoutADriverNamesTheDevice) {
  if (!gpus().backend()->versions().driver.empty()) GTEST_SKIP() << "there is a driver";
  EXPECT_THAT(error_of([] { CublasLt().get_ready(kHere); }),
              AllOf(StartsWith("cublasLtCreate failed: "), EndsWith(", on gpu:0")));
}

}  // namespace cublas_lt_test
}  // namespace belfry::cuda
