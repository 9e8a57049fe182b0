#include "belfry/ops/attention/causal_attention.h"

#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/attention/attention_impl.h"
#include "belfry/ops/attention/plain_attention_impl.h"
#include "belfry/ops/kernels/stored_elements.h"

namespace belfry {
namespace {

using kernels::AttentionShape;

// Input i is q; k and v follow it.
void require_heads(const ShapeContext& c, std::size_t i) {
  const auto& options = c.options<CausalAttentionOptions>();
  c.require(options.heads >= 1, "needs at least 1 head, not ", options.heads);
  c.require(options.scale >= 0 && std::isfinite(options.scale),
            "the scale must be positive, or 0 for 1 / sqrt(head_dim), not ", options.scale);
  c.require_floating(i);
  const Shape& q = c.input(i);
  c.require(q.rank() == 3, "needs queries [batch, time, heads * head_dim], not ", q);
  c.require(q[2] == kUnknownSize || (q[2] > 0 && q[2] % options.heads == 0), options.heads,
            " heads do not divide the width of queries ", q);
  for (const std::size_t k : {i + 1, i + 2})
    c.require(c.dtype(k) == c.dtype(i) && c.input(k).compatible(q),
              "queries, keys and values must be alike, not ", c.type(i), ", ", c.type(i + 1),
              " and ", c.type(i + 2));
}

TensorType sums_of(const TensorType& q, int heads) {
  return {{q.shape[0], heads, q.shape[1]}, q.dtype == DType::kF64 ? DType::kF64 : DType::kF32};
}

OutputTypes attention_shape(const ShapeContext& c) {
  require_heads(c, 0);
  return {c.type(0), sums_of(c.type(0), c.options<CausalAttentionOptions>().heads)};
}

OutputTypes attention_grad_shape(const ShapeContext& c) {
  require_heads(c, 1);
  const TensorType sums = sums_of(c.type(1), c.options<CausalAttentionOptions>().heads);
  for (const std::size_t i : {0, 4})
    c.require(c.dtype(i) == c.dtype(1) && c.input(i).compatible(c.input(1)), "input ", i, " is ",
              c.type(i), ", but queries are ", c.type(1));
  c.require(c.dtype(5) == sums.dtype && c.input(5).compatible(sums.shape),
            "logarithms of sums are ", sums, ", not ", c.type(5));
  return {c.type(1), c.type(2), c.type(3)};
}

std::vector<Output> attention_gradient(const Node& node, std::span<const Output> grads) {
  require<NotFoundError>(!grads[1], node.describe(), ": the logarithms of sums have no gradient");
  const Node& grad = node.graph().add(
      kCausalAttentionGrad,
      {grads[0], node.input(0), node.input(1), node.input(2), node.output(0), node.output(1)}, {},
      node.raw_options());
  return {grad.output(0), grad.output(1), grad.output(2)};
}

AttentionShape shape_of_heads(const KernelPlan& plan, const Shape& q) {
  const auto& options = plan.options<CausalAttentionOptions>();
  const std::int64_t head_dim = q[2] / options.heads;
  return {.heads = options.heads,
          .time = q[1],
          .head_dim = head_dim,
          .scale = attention_scale(options, head_dim)};
}

// Calls each(offset, row of sums) for all heads of all samples.
template <class Each>
void for_each_head(const AttentionShape& shape, std::int64_t samples, const Each& each) {
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t h = 0; h < shape.heads; ++h)
      each(shape.offset(b, h), (b * shape.heads + h) * shape.time);
}

template <class T>
using HeadKernel = decltype(kernels::attention_head<T>);
template <class T>
using HeadGradKernel = decltype(kernels::attention_head_grad<T>);

template <class T>
KernelRun attention_by(HeadKernel<T>& kernel, const KernelPlan& plan, const AttentionShape& shape) {
  return [&kernel, shape, samples = plan.output().shape[0],
          stored = kernels::StoredElements<T>(plan.dtype())](const KernelPointers& p) {
    const kernels::AttentionTensors tensors{.q = p.input<void>(0),
                                            .k = p.input<void>(1),
                                            .v = p.input<void>(2),
                                            .y = p.output<void>(0)};
    for_each_head(shape, samples, [&](std::int64_t at, std::int64_t row) {
      kernel(shape, stored, tensors, at, p.output<T>(1) + row, p.workspace());
    });
  };
}

template <class T>
KernelRun attention_grad_by(HeadGradKernel<T>& kernel, const KernelPlan& plan,
                            const AttentionShape& shape) {
  return [&kernel, shape, samples = plan.output().shape[0],
          stored = kernels::StoredElements<T>(plan.dtype())](const KernelPointers& p) {
    const kernels::AttentionGradTensors tensors{.dy = p.input<void>(0),
                                                .q = p.input<void>(1),
                                                .k = p.input<void>(2),
                                                .v = p.input<void>(3),
                                                .y = p.input<void>(4),
                                                .dq = p.output<void>(0),
                                                .dk = p.output<void>(1),
                                                .dv = p.output<void>(2)};
    for_each_head(shape, samples, [&](std::int64_t at, std::int64_t row) {
      kernel(shape, stored, tensors, at, p.input<T>(5) + row, p.workspace());
    });
  };
}

KernelRun attention_cpu(KernelPlan& plan) {
  const AttentionShape shape = shape_of_heads(plan, plan.input(0).shape);
  return kernels::visit_computed(plan.dtype(), [&]<class T>(T) {
    plan.workspace(kernels::attention_workspace<T>(shape));
    return attention_by<T>(kernels::attention_head<T>, plan, shape);
  });
}

KernelRun attention_reference(KernelPlan& plan) {
  const AttentionShape shape = shape_of_heads(plan, plan.input(0).shape);
  return kernels::visit_computed(plan.dtype(), [&]<class T>(T) {
    return attention_by<T>(kernels::plain_attention_head<T>, plan, shape);
  });
}

KernelRun attention_grad_cpu(KernelPlan& plan) {
  const AttentionShape shape = shape_of_heads(plan, plan.input(1).shape);
  return kernels::visit_computed(plan.dtype(), [&]<class T>(T) {
    plan.workspace(kernels::attention_grad_workspace<T>(shape));
    return attention_grad_by<T>(kernels::attention_head_grad<T>, plan, shape);
  });
}

KernelRun attention_grad_reference(KernelPlan& plan) {
  const AttentionShape shape = shape_of_heads(plan, plan.input(1).shape);
  return kernels::visit_computed(plan.dtype(), [&]<class T>(T) {
    return attention_grad_by<T>(kernels::plain_attention_head_grad<T>, plan, shape);
  });
}

}  // namespace

const Op kCausalAttention{.name = "CausalAttention",
                          .inputs = 3,
                          .shape = attention_shape,
                          .gradient = attention_gradient,
                          .missing_grads = true,
                          .heavy = true,
                          .shards = by_rows<7>,
                          .cpu = attention_cpu,
                          .reference = attention_reference,
                          .half = true,
                          .autocast = Autocast::kCompute};

const Op kCausalAttentionGrad{.name = "CausalAttentionGrad",
                              .inputs = 6,
                              .shape = attention_grad_shape,
                              .no_gradient = "second derivatives of attention are not supported",
                              .heavy = true,
                              .shards = by_rows<63>,
                              .cpu = attention_grad_cpu,
                              .reference = attention_grad_reference,
                              .half = true};

Output causal_attention(Output q, Output k, Output v, CausalAttentionOptions options, At at) {
  return q.graph().add(kCausalAttention, {q, k, v}, at, NodeOptions(options)).output();
}

double attention_scale(const CausalAttentionOptions& options, std::int64_t head_dim) {
  return options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

}  // namespace belfry
