#include "belfry/ops/matmul.h"

#include <algorithm>
#include <memory>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/kernels/gemm.h"
#include "belfry/ops/kernels/onednn_gemm.h"
#include "belfry/ops/matmul_impl.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sum_to.h"

namespace belfry {
namespace {

// The leading dimension `back` from the last of a tensor; 1 if it has none.
std::int64_t leading_size(const Shape& x, std::size_t back) {
  return back <= x.rank() ? x[x.rank() - back] : 1;
}

// The shape of products, without a check of leading dimensions.
Shape product_shape(const ShapeContext& c, Shape out) {
  const Shape &a = c.input(0), &b = c.input(1);
  const auto& options = c.options<MatMulOptions>();
  const std::int64_t k_a = a[a.rank() - (options.transpose_a ? 2 : 1)];
  const std::int64_t k_b = b[b.rank() - (options.transpose_b ? 1 : 2)];
  c.require(k_a == k_b || k_a == kUnknownSize || k_b == kUnknownSize,
            "inner dimensions differ: ", a, options.transpose_a ? " (transposed)" : "", " x ", b,
            options.transpose_b ? " (transposed)" : "");
  out[out.rank() - 2] = a[a.rank() - (options.transpose_a ? 1 : 2)];
  out[out.rank() - 1] = b[b.rank() - (options.transpose_b ? 2 : 1)];
  return out;
}

// The product shape of matrices with equal leading dimensions.
OutputTypes matmul_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  const Shape &a = c.input(0), &b = c.input(1);
  const std::size_t rank = a.rank();
  c.require(rank >= 2 && b.rank() == rank, "needs two tensors of one rank, 2 or more, not ", a,
            " x ", b);
  Shape out = a;
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    c.require(a[i] == b[i] || a[i] == kUnknownSize || b[i] == kUnknownSize, "leading dimension ", i,
              " differs: ", a, " x ", b);
    out[i] = a[i] == kUnknownSize ? b[i] : a[i];
  }
  return {product_shape(c, out)};
}

OutputTypes broadcast_matmul_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  const Shape &a = c.input(0), &b = c.input(1);
  c.require(a.rank() >= 2 && b.rank() >= 2, "needs matrices, not ", a, " x ", b);
  Shape out = a.rank() >= b.rank() ? a : b;
  for (std::size_t back = 3; back <= out.rank(); ++back) {
    const std::int64_t left = leading_size(a, back), right = leading_size(b, back);
    c.require(
        left == 1 || right == 1 || left == right || left == kUnknownSize || right == kUnknownSize,
        "leading dimensions ", left, " and ", right, " must be equal, or one of them 1: ", a, " x ",
        b);
    out[out.rank() - back] = left == 1 || (left == kUnknownSize && right != 1) ? right : left;
  }
  return {product_shape(c, out)};
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

// The sum of `grad` over the leading dimensions along which `x` was repeated beside `other`.
Output over_repeated(Output grad, Output x, const Shape& other) {
  Shape leading_of_other = other;
  for (std::size_t back = 1; back <= 2; ++back) leading_of_other[other.rank() - back] = 1;
  return sum_to(grad, x, leading_of_other);
}

std::vector<Output> broadcast_matmul_gradient(const Node& node, std::span<const Output> grads) {
  const std::vector<Output> products = matmul_gradient(node, grads);
  const Output a = node.input(0), b = node.input(1);
  return {over_repeated(products[0], a, b.shape()), over_repeated(products[1], b, a.shape())};
}

OpWork matmul_work(const WorkContext& c) {
  const Shape& a = c.inputs[0].shape;
  const bool by_rows = c.node.options<MatMulOptions>().transpose_a;
  const std::int64_t inner = a[a.rank() - (by_rows ? 2 : 1)];
  return {work_elements(c.outputs[0].shape) * work_elements(Shape{inner})};
}

Sharding matmul_shards(const ShardContext& c) {
  return row_shards(c, c.inputs[0].shape.rank() == 2 ? 1 : 3);
}

// The op sums over the rows of both inputs.
Sharding transpose_a_shards(const ShardContext& c) {
  return c.node.options<MatMulOptions>().transpose_b ? Sharding() : sum_shards(c, 3);
}

// A factor has rows of the batch if it has the first dimension of the product.
Sharding broadcast_matmul_shards(const ShardContext& c) {
  const Shape& out = c.outputs[0].shape;
  unsigned own = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const Shape& x = c.inputs[i].shape;
    if (x.rank() == out.rank() && x[0] == out[0]) own |= 1u << i;
  }
  return out.rank() == 2 ? Sharding() : row_shards(c, own);
}

// Equal-sized products one after the other. Steps are in elements.
struct Products {
  kernels::GemmShape gemm;
  std::vector<LeadingDimension> leading;
  std::int64_t step_a = 0, step_b = 0, step_c = 0;
};

Products products_of(const KernelPlan& plan) {
  const auto [ta, tb] = plan.options<MatMulOptions>();
  const Shape &a = plan.input(0).shape, &b = plan.input(1).shape, &c = plan.output().shape;
  const kernels::GemmShape gemm{.m = c[c.rank() - 2],
                                .n = c.back(),
                                .k = a[a.rank() - (ta ? 2 : 1)],
                                .transpose_a = ta,
                                .transpose_b = tb,
                                .row_a = a.back(),
                                .row_b = b.back()};
  return {.gemm = gemm,
          .leading = leading_dimensions(a, b, c),
          .step_a = gemm.m * gemm.k,
          .step_b = gemm.k * gemm.n,
          .step_c = gemm.m * gemm.n};
}

// multiply(rows, a, b, c, workspace) computes these rows of one product. Only a single product is
// divided.
template <class T, class Multiply>
KernelRun each_product(const KernelPlan& plan, const Products& s, Multiply multiply) {
  const bool divides = plan.op().split == WorkSplit::kRows && plan.output().shape.rank() == 2;
  return [s, multiply, divides](const KernelPointers& p) {
    const T* a = p.input<T>(0);
    const T* b = p.input<T>(1);
    T* c = p.output<T>();
    const WorkRange rows = divides ? WorkRange{p.begin(), p.end()} : WorkRange{0, s.gemm.m};
    each_leading(s.leading, s.leading.size(), 0, 0, [&](std::int64_t i, std::int64_t j) {
      multiply(rows, a + i * s.step_a, b + j * s.step_b, c, p.workspace());
      c += s.step_c;
    });
  };
}

// Our own kernels, for some rows.
template <class T, class Gemm>
KernelRun products_by(const KernelPlan& plan, const Products& s, Gemm gemm) {
  return each_product<T>(
      plan, s, [shape = s.gemm, gemm](WorkRange rows, const T* a, const T* b, T* c, std::byte*) {
        kernels::GemmShape part = shape;
        part.m = rows.size();
        const std::int64_t first = rows.begin;
        gemm(part, a + (shape.transpose_a ? first : first * shape.row_a), b, c + first * shape.n);
      });
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
        plan, s,
        [library](WorkRange rows, const float* a, const float* b, float* c, std::byte* workspace) {
          library->run(rows.begin, rows.end, a, b, c, workspace);
        });
  }
#endif
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return products_by<T>(plan, s, [](const auto&... of) { kernels::gemm(of...); });
  });
}

KernelRun matmul_reference(KernelPlan& plan) {
  const Products s = products_of(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return products_by<T>(plan, s, [](const auto&... of) { kernels::gemm_reference(of...); });
  });
}

}  // namespace

const Op kMatMul{.name = "MatMul",
                 .inputs = 2,
                 .shape = matmul_rows_shape,
                 .gradient = matmul_gradient,
                 .split = WorkSplit::kRows,
                 .heavy = true,
                 .work = matmul_work,
                 .shards = matmul_shards,
                 .cpu = matmul_cpu,
                 .reference = matmul_reference,
                 .autocast = Autocast::kCompute};

const Op kMatMulTransposeA{.name = "MatMulTransposeA",
                           .inputs = 2,
                           .shape = matmul_transpose_a_shape,
                           .gradient = matmul_gradient,
                           .split = WorkSplit::kRows,
                           .heavy = true,
                           .work = matmul_work,
                           .shards = transpose_a_shards,
                           .cpu = matmul_cpu,
                           .reference = matmul_reference,
                           .autocast = Autocast::kCompute};

const Op kBroadcastMatMul{.name = "BroadcastMatMul",
                          .inputs = 2,
                          .shape = broadcast_matmul_shape,
                          .gradient = broadcast_matmul_gradient,
                          .heavy = true,
                          .work = matmul_work,
                          .shards = broadcast_matmul_shards,
                          .cpu = matmul_cpu,
                          .reference = matmul_reference,
                          .autocast = Autocast::kCompute};
const StoredOptions<MatMulOptions> kStoredMatMul(kMatMul, kMatMulTransposeA, kBroadcastMatMul);

namespace {

// Whether leading dimensions differ, or may differ because one of them is 1.
bool is_broadcast(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return true;
  for (std::size_t i = 0; i + 2 < a.rank(); ++i)
    if (a[i] != b[i] && (a[i] == 1 || b[i] == 1)) return true;
  return false;
}

Output matmul_of(Output a, Output b, MatMulOptions options, At at) {
  const Shape &left = a.shape(), &right = b.shape();
  const bool reduces = left.rank() == 2 && right.rank() == 2 && options.transpose_a;
  const bool repeats = left.rank() >= 2 && right.rank() >= 2 && is_broadcast(left, right);
  const Op& op = reduces ? kMatMulTransposeA : repeats ? kBroadcastMatMul : kMatMul;
  return a.graph().add(op, {a, b}, at, NodeOptions(options)).output();
}

// All rows of a [..., m, k] times one matrix, as one product; an empty Output if a shape is not
// known well enough.
Output product_of_rows(Output a, Output b, MatMulOptions options, At at) {
  std::vector<std::int64_t> dims = a.shape().dims();
  const std::int64_t k = dims.back();
  dims.back() = b.shape()[options.transpose_b ? 0 : 1];
  if (k < 1 || std::ranges::count(dims, kUnknownSize) > 1) return {};
  const Output rows = reshape(a, {kUnknownSize, k}, at.site);
  return reshape(matmul_of(rows, b, options, at), Shape(dims), at.site);
}

}  // namespace

Output matmul(Output a, Output b, MatMulOptions options, At at) {
  const std::size_t rank_a = a.shape().rank(), rank_b = b.shape().rank();
  require(rank_a > 0 && rank_b > 0, "matmul (", at.site, "): ", a.type(), " x ", b.type(),
          " has a scalar; multiply by *");
  if (rank_a == 1) {
    options.transpose_a = false;
    return squeeze(matmul(expand_dims(a, 0, at.site), b, options, at), {rank_b == 1 ? 0 : -2},
                   at.site);
  }
  if (rank_b == 1) {
    options.transpose_b = false;
    return squeeze(matmul(a, expand_dims(b, 1, at.site), options, at), {-1}, at.site);
  }
  if (rank_a > 2 && rank_b == 2 && !options.transpose_a)
    if (const Output rows = product_of_rows(a, b, options, at)) return rows;
  return matmul_of(a, b, options, at);
}

}  // namespace belfry
