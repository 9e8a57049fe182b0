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
  void run(const float* a, const float* b, float* c, std::byte* workspace) const {
    run(0, shape_.m, a, b, c, workspace);
  }
  // Computes rows [begin, end) of C alone: parts of rows_of_product_part(), in plans of a product.
  void run(std::int64_t begin, std::int64_t end, const float* a, const float* b, float* c,
           std::byte* workspace) const;

 private:
  void run_rows(const std::optional<onednn::Primitive>& matmul, std::int64_t begin,
                std::int64_t end, const float* a, const float* b, float* c,
                std::byte* workspace) const;

  std::string node_;
  GemmShape shape_;
  std::int64_t part_rows_;
  // For the rows of a part, and of a last part that is smaller. Empty for sgemm.
  std::optional<onednn::Primitive> part_, last_;
};

}  // namespace belfry::kernels
#endif
