#include "belfry/ops/kernels/onednn_gemm.h"

#if BELFRY_ONEDNN
#include "belfry/framework/graph/node.h"

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
    : node_(plan.node().describe()), shape_(shape) {
  if (!shape.transpose_b && shape.n >= kNarrow) {
    onednn::guarded(plan, [] { onednn::make_code_of_products(); });
    return;
  }
  matmul_ = make_matmul(plan, shape);
  plan.workspace(matmul_->scratch_bytes());
}

void OneDnnGemm::run(const float* a, const float* b, float* c, std::byte* workspace) const {
  if (matmul_) {
    matmul_->run({{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}, workspace);
    return;
  }
  const OneDnnCall call;
  onednn::check_run(
      dnnl_sgemm(shape_.transpose_a ? 'T' : 'N', shape_.transpose_b ? 'T' : 'N', shape_.m, shape_.n,
                 shape_.k, 1.0f, a, shape_.row_a, b, shape_.row_b, 0.0f, c, shape_.n),
      node_);
}

}  // namespace belfry::kernels
#endif
