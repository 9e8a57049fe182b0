#include "belfry/framework/cuda/runtime/cublas_lt.h"

#include <bit>
#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

// The most workspace that cuBLASLt may ask for, as NVIDIA recommends for Hopper.
constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;
// Alignment of the tensors in an arena, in bytes. cuBLASLt also knows the distance between a
// batch's matrices.
constexpr std::uint32_t kAlignment = 64;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return CUDA_R_32F;
    case DType::kF64: return CUDA_R_64F;
    case DType::kF16: return CUDA_R_16F;
    case DType::kBF16: return CUDA_R_16BF;
    default: throw InternalError(cat("cuBLASLt computes nothing in ", name_of(dtype)));
  }
}

cublasComputeType_t compute_type(const MatMul& matmul) {
  if (matmul.dtype == DType::kF64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = matmul.dtype == DType::kF32 && matmul.compute == Compute::kTf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

MatrixLayout describe_matrix(const ColumnMajor& matrix, DType dtype, const MatMul& matmul,
                             const Where& where) {
  cublasLtMatrixLayout_t handle = nullptr;
  BELFRY_GPU_CALL(
      cublasLtMatrixLayoutCreate(&handle, data_type(dtype), static_cast<std::uint64_t>(matrix.rows),
                                 static_cast<std::uint64_t>(matrix.columns), matrix.leading),
      where);
  MatrixLayout layout(handle);
  const auto count = static_cast<std::int32_t>(matmul.count);
  BELFRY_GPU_CALL(cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                   &count, sizeof count),
                  where);
  BELFRY_GPU_CALL(
      cublasLtMatrixLayoutSetAttribute(handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &matrix.step, sizeof matrix.step),
      where);
  return layout;
}

MatMulDescriptor describe_product(const MatMul& matmul, const Where& where) {
  cublasLtMatmulDesc_t handle = nullptr;
  const auto scale = matmul.dtype == DType::kF64 ? CUDA_R_64F : CUDA_R_32F;
  BELFRY_GPU_CALL(cublasLtMatmulDescCreate(&handle, compute_type(matmul), scale), where);
  MatMulDescriptor product(handle);
  const auto transpose = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    BELFRY_GPU_CALL(cublasLtMatmulDescSetAttribute(handle, which, &operation, sizeof operation),
                    where);
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, matmul.transpose_a);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, matmul.transpose_b);
  return product;
}

using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

Preference make_preference(const Where& where) {
  cublasLtMatmulPreference_t handle = nullptr;
  BELFRY_GPU_CALL(cublasLtMatmulPreferenceCreate(&handle), where);
  Preference preference(handle);
  BELFRY_GPU_CALL(
      cublasLtMatmulPreferenceSetAttribute(handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kMostWorkspace, sizeof kMostWorkspace),
      where);
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    BELFRY_GPU_CALL(
        cublasLtMatmulPreferenceSetAttribute(handle, which, &kAlignment, sizeof kAlignment), where);
  return preference;
}

using Words = decltype(MatMulAlgorithm::algorithm);
static_assert(sizeof(Words) == sizeof(cublasLtMatmulAlgo_t));

}  // namespace

MatMulDescriptors describe(const MatMul& matmul, const Where& where) {
  require<DeviceError>(matmul.count <= std::numeric_limits<std::int32_t>::max(), "a product of ",
                       matmul.count, " matrices is more than cuBLASLt computes, ", where);
  return {.product = describe_product(matmul, where),
          .a = describe_matrix(matmul.a, matmul.dtype, matmul, where),
          .b = describe_matrix(matmul.b, matmul.dtype, matmul, where),
          .c = describe_matrix(matmul.c, matmul.wide ? DType::kF32 : matmul.dtype, matmul, where)};
}

void CublasLt::get_ready(const Where& where) {
  if (!handle_) handle_ = make_cublas_lt(where.str());
}

const MatMulDescriptors& CublasLt::described(const MatMul& matmul, const Where& where) {
  auto found = matmuls_.find(matmul);
  if (found == matmuls_.end()) found = matmuls_.emplace(matmul, describe(matmul, where)).first;
  return found->second;
}

MatMulAlgorithm CublasLt::algorithm(const MatMul& matmul, const Where& where) {
  get_ready(where);
  const MatMulDescriptors& d = described(matmul, where);
  const Preference preference = make_preference(where);
  cublasLtMatmulHeuristicResult_t best{};
  int count = 0;
  BELFRY_GPU_CALL(
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), d.product.get(), d.a.get(), d.b.get(),
                                     d.c.get(), d.c.get(), preference.get(), 1, &best, &count),
      where);
  require<DeviceError>(count > 0, "cuBLASLt has no algorithm ", where);
  if (best.state != CUBLAS_STATUS_SUCCESS)
    fail(best.state, "cuBLASLt", cat("asking cuBLASLt for an algorithm ", where));
  return {.algorithm = std::bit_cast<Words>(best.algo),
          .workspace_bytes = static_cast<std::int64_t>(best.workspaceSize)};
}

void CublasLt::matmul(const MatMulCall& call, cudaStream_t stream, const Where& where) {
  get_ready(where);
  const MatMulDescriptors& d = described(call.matmul, where);
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(call.algorithm.algorithm);
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool doubles = call.matmul.dtype == DType::kF64;
  const void* alpha = doubles ? static_cast<const void*>(&one64) : &one;
  const void* beta = doubles ? static_cast<const void*>(&zero64) : &zero;
  if (call.matmul.added) beta = alpha;
  BELFRY_GPU_CALL(
      cublasLtMatmul(handle_.get(), d.product.get(), alpha, call.a, d.a.get(), call.b, d.b.get(),
                     beta, call.c, d.c.get(), call.c, d.c.get(), &algorithm, call.workspace,
                     static_cast<std::size_t>(call.algorithm.workspace_bytes), stream),
      where);
}

}  // namespace belfry::cuda
