// f32 products of matrices by oneDNN.
#pragma once
#include "belfry/ops/kernels/gemm.h"
#include "belfry/ops/kernels/onednn.h"

#if BELFRY_ONEDNN
#include <optional>
#include <string>

namespace belfry::kernels {

// The faster of the library's two ways, as measured on one thread at 32 to 256 rows: its sgemm, or
// its matmul primitive where op(B) is transposed (1.1-1.4x ahead) or narrow (1.05-1.5x ahead).
class OneDnnGemm {
 public:
  // Asks the plan for the workspace that run() is given.
  OneDnnGemm(KernelPlan& plan, const GemmShape& shape);
  void run(const float* a, const float* b, float* c, std::byte* workspace) const;

 private:
  std::string node_;
  GemmShape shape_;
  std::optional<onednn::Primitive> matmul_;  // empty for sgemm
};

}  // namespace belfry::kernels
#endif
