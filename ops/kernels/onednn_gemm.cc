#include "belfry/ops/kernels/onednn_gemm.h"

#if BELFRY_ONEDNN
#include <algorithm>

#include "belfry/framework/graph/node.h"
#include "belfry/framework/graph/op_work.h"

namespace belfry::kernels {
namespace {

constexpr std::int64_t kNarrow = 64;

onednn::Primitive make_matmul(const KernelPlan& plan, const GemmShape& s) {
  using dnnl::memory;
  const auto matrix = [](std::int64_t rows, std::int64_t columns, bool transposed,
                         std::int64_t stride) {
    const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
    return memory::desc({rows, columns}, memory::data_type::f32, strides);
  };
  return onednn::guarded(plan, [&] {
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(matrix(s.m, s.k, s.transpose_a, s.row_a),
                           matrix(s.k, s.n, s.transpose_b, s.row_b), matrix(s.m, s.n, false, s.n)),
        onednn::user_scratchpad(), onednn::engine());
    onednn::report(plan, description);
    return onednn::Primitive(plan.node().describe(), dnnl::matmul(description), description,
                             {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
  });
}

}  // namespace

OneDnnGemm::OneDnnGemm(KernelPlan& plan, const GemmShape& shape)
    : node_(plan.node().describe()),
      shape_(shape),
      part_rows_(plan.op().split == WorkSplit::kRows && plan.output().shape.rank() == 2
                     ? rows_of_product_part(plan.output().shape)
                     : shape.m) {
  if (!shape.transpose_b && shape.n >= kNarrow) {
    onednn::guarded(plan, [] { onednn::make_code_of_products(); });
    return;
  }
  std::int64_t workspace = 0;
  const auto make = [&](std::optional<onednn::Primitive>& matmul, std::int64_t rows) {
    GemmShape part = shape;
    part.m = rows;
    matmul = make_matmul(plan, part);
    workspace = std::max(workspace, matmul->scratch_bytes());
  };
  make(part_, part_rows_);
  if (const std::int64_t last = shape.m % part_rows_; last > 0) make(last_, last);
  plan.workspace(workspace);
}

// Calls are the same for any number of workers, because the bits of a row depend on the rows of its
// call.
void OneDnnGemm::run(std::int64_t begin, std::int64_t end, const float* a, const float* b, float* c,
                     std::byte* workspace) const {
  for (std::int64_t row = begin; row < end; row += part_rows_) {
    const std::int64_t next = std::min(row + part_rows_, end);
    run_rows(next - row == part_rows_ ? part_ : last_, row, next, a, b, c, workspace);
  }
}

void OneDnnGemm::run_rows(const std::optional<onednn::Primitive>& matmul, std::int64_t begin,
                          std::int64_t end, const float* a, const float* b, float* c,
                          std::byte* workspace) const {
  a += shape_.transpose_a ? begin : begin * shape_.row_a;
  c += begin * shape_.n;
  if (matmul) {
    matmul->run({{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}, workspace);
    return;
  }
  const OneDnnCall call;
  onednn::check_run(
      dnnl_sgemm(shape_.transpose_a ? 'T' : 'N', shape_.transpose_b ? 'T' : 'N', end - begin,
                 shape_.n, shape_.k, 1.0f, a, shape_.row_a, b, shape_.row_b, 0.0f, c, shape_.n),
      node_);
}

}  // namespace belfry::kernels
#endif
