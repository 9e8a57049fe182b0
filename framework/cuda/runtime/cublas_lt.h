// Products of matrices by cuBLASLt. No other source calls it for them.
#pragma once
#include <map>

#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

using MatMulDescriptor = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

struct MatMulDescriptors {
  MatMulDescriptor product;
  MatrixLayout a, b, c;
};

// Needs no GPU. Products of f32 are exact unless tf32 is requested; 16-bit ones are added in f32.
MatMulDescriptors describe(const MatMul& matmul, const Where& where);

// A handle of cuBLASLt on the GPU that is current when its functions are called. For one thread at
// a time.
class CublasLt {
 public:
  // Makes the handle if there is none. So do the functions below.
  void get_ready(const Where& where);

  // The algorithm that cuBLASLt expects to be the fastest, without measuring. It depends only on
  // the product, the library and the kind of GPU. Throws DeviceError if it has none.
  MatMulAlgorithm algorithm(const MatMul& matmul, const Where& where);
  void matmul(const MatMulCall& call, cudaStream_t stream, const Where& where);

 private:
  const MatMulDescriptors& described(const MatMul& matmul, const Where& where);

  CublasLtHandle handle_;
  std::map<MatMul, MatMulDescriptors> matmuls_;  // made in the first run of each
};

}  // namespace belfry::cuda
