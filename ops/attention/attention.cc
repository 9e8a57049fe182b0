#include "belfry/ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/op_work.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/attention/attention_impl.h"
#include "belfry/ops/attention/composed_attention.h"
#include "belfry/ops/attention/joined_attention.h"
#include "belfry/ops/attention/plain_attention_impl.h"
#include "belfry/ops/kernels/stored_elements.h"

namespace belfry {
namespace {

using kernels::AttentionPlaces;
using kernels::AttentionShape;
using kernels::HeadGroup;
using kernels::MaskKind;
using kernels::MaskLayout;

void require_options(const ShapeContext& c) {
  const auto& options = c.options<AttentionOptions>();
  c.require(options.heads >= 1, "needs at least 1 head, not ", options.heads);
  c.require(options.kv_heads >= 0 && options.heads % kv_heads_of(options) == 0, options.kv_heads,
            " heads of keys and values do not divide ", options.heads, " heads");
  c.require(options.scale >= 0 && std::isfinite(options.scale),
            "the scale must be positive, or 0 for 1 / sqrt(head_dim), not ", options.scale);
  c.require(options.window >= 0, "the window must be at least 1 key, or 0 for no limit, not ",
            options.window);
  c.require(options.window == 0 || options.causal, "a window of ", options.window,
            " keys needs causal attention: set the option `causal`");
}

// Input i is q; k and v follow it.
void require_heads(const ShapeContext& c, std::size_t i) {
  require_options(c);
  const auto& options = c.options<AttentionOptions>();
  c.require_floating(i);
  const Shape& q = c.input(i);
  c.require(q.rank() == 3, "needs queries [batch, time, heads * head_dim], not ", q);
  c.require(q[2] == kUnknownSize || (q[2] > 0 && q[2] % options.heads == 0), options.heads,
            " heads do not divide the width of queries ", q);
  const std::int64_t width =
      q[2] == kUnknownSize ? q[2] : q[2] / options.heads * kv_heads_of(options);
  for (const std::size_t k : {i + 1, i + 2}) {
    c.require(c.dtype(k) == c.dtype(i) && c.input(k).rank() == 3,
              "queries, keys and values must be alike, not ", c.type(i), ", ", c.type(i + 1),
              " and ", c.type(i + 2));
    c.require(c.input(k).compatible({q[0], c.input(i + 1)[1], width}), "queries ", c.input(i),
              " do not fit keys ", c.input(i + 1), " and values ", c.input(i + 2),
              "; these are [batch, keys, kv_heads * head_dim]");
  }
  c.require(c.input(i + 1)[1] != 0 || q[1] == 0, "queries ", q, " have no keys: ", c.input(i + 1));
}

bool fits_or_repeats(std::int64_t size, std::int64_t wanted) {
  return size == wanted || size == 1 || size == kUnknownSize || wanted == kUnknownSize;
}

void require_mask(const ShapeContext& c, std::size_t mask, std::size_t q) {
  const Shape& m = c.input(mask);
  c.require(c.dtype(mask) == DType::kBool || c.dtype(mask) == c.dtype(q), "the mask is ",
            c.type(mask), ", but must be bool, or of the type of the queries, ",
            name_of(c.dtype(q)));
  const std::int64_t wanted[] = {c.input(q)[0], c.options<AttentionOptions>().heads, c.input(q)[1],
                                 c.input(q + 1)[1]};
  bool good = m.rank() >= 2 && m.rank() <= 4;
  for (std::size_t axis = 0; good && axis < m.rank(); ++axis) {
    const std::size_t from_end = m.rank() - axis;
    const std::size_t of = m.rank() == 3 && axis == 0 ? 0 : 4 - from_end;
    const bool last = from_end == 1;
    good = last ? m[axis] == wanted[3] || m[axis] == kUnknownSize || wanted[3] == kUnknownSize
                : fits_or_repeats(m[axis], wanted[of]);
  }
  c.require(good, "the mask ", m, " does not fit queries ", c.input(q), " and keys ",
            c.input(q + 1),
            "; it is [queries, keys], [batch, queries, keys] or [batch, heads, "
            "queries, keys]");
}

AttentionPlaces places_of(const ShapeContext& c, std::size_t fixed) {
  return kernels::attention_places(c.inputs(), fixed, [&](std::size_t i) { return c.dtype(i); });
}

// After the first `fixed` inputs come the optional ones.
void require_inputs(const ShapeContext& c, std::size_t fixed) {
  bool good = c.inputs() >= fixed;
  if (good) {
    const AttentionPlaces places = places_of(c, fixed);
    good = c.inputs() - fixed == (places.mask > 0 ? 1U : 0U) + (places.lengths > 0 ? 1U : 0U);
  }
  c.require(good, "takes ", fixed, " inputs, and after them a mask and lengths; it has ",
            c.inputs());
}

// Checks the optional inputs; input `q` is the queries.
AttentionPlaces require_optional(const ShapeContext& c, std::size_t fixed, std::size_t q) {
  const AttentionPlaces places = places_of(c, fixed);
  if (places.mask > 0) require_mask(c, places.mask, q);
  if (places.lengths > 0)
    c.require(c.input(places.lengths).compatible({c.input(q)[0]}),
              "needs lengths i32 or i64 [batch], not ", c.type(places.lengths), " for queries ",
              c.input(q));
  return places;
}

TensorType sums_of(const TensorType& q, int heads) {
  return {{q.shape[0], heads, q.shape[1]}, q.dtype == DType::kF64 ? DType::kF64 : DType::kF32};
}

OutputTypes attention_shape(const ShapeContext& c) {
  require_inputs(c, 3);
  require_heads(c, 0);
  require_optional(c, 3, 0);
  return {c.type(0), sums_of(c.type(0), c.options<AttentionOptions>().heads)};
}

OutputTypes attention_grad_shape(const ShapeContext& c) {
  require_inputs(c, 6);
  require_heads(c, 1);
  const TensorType sums = sums_of(c.type(1), c.options<AttentionOptions>().heads);
  for (const std::size_t i : {0, 4})
    c.require(c.dtype(i) == c.dtype(1) && c.input(i).compatible(c.input(1)), "input ", i, " is ",
              c.type(i), ", but queries are ", c.type(1));
  c.require(c.dtype(5) == sums.dtype && c.input(5).compatible(sums.shape),
            "logarithms of sums are ", sums, ", not ", c.type(5));
  const AttentionPlaces places = require_optional(c, 6, 1);
  OutputTypes types{c.type(1), c.type(2), c.type(3)};
  if (places.mask > 0 && c.dtype(places.mask) != DType::kBool) types.push_back(c.type(places.mask));
  return types;
}

std::vector<Output> attention_gradient(const Node& node, std::span<const Output> grads) {
  require<NotFoundError>(!grads[1], node.describe(), ": the logarithms of sums have no gradient");
  std::vector<Output> inputs{grads[0],      node.input(0),  node.input(1),
                             node.input(2), node.output(0), node.output(1)};
  const auto all = node.inputs();
  for (std::size_t i = 3; i < all.size(); ++i) inputs.push_back(node.input(i));
  const Node& grad = node.graph().add(kAttentionGrad, inputs, {}, node.raw_options());
  std::vector<Output> results{grad.output(0), grad.output(1), grad.output(2)};
  for (std::size_t i = 3; i < all.size(); ++i)
    results.push_back(is_floating(node.input(i).dtype()) ? grad.output(3) : Output());
  return results;
}

// A mask without a dimension of the batch is whole in all shards, so its gradient is a sum.
struct OwnInputs {
  OwnInputs(const ShardContext& c, std::size_t fixed, std::size_t q) : bits((1u << fixed) - 1) {
    const AttentionPlaces places = kernels::attention_places(
        c.inputs.size(), fixed, [&](std::size_t i) { return c.inputs[i].dtype; });
    if (places.lengths > 0) bits |= 1u << places.lengths;
    if (places.mask == 0) return;
    const Shape& mask = c.inputs[places.mask].shape;
    const bool cut = c.divisions[places.mask].kind == Division::Kind::kRows;
    mask_has_rows = mask.rank() > 2 && (mask[0] > 1 || cut) && mask[0] == c.inputs[q].shape[0];
    if (mask_has_rows) bits |= 1u << places.mask;
  }

  unsigned bits;
  bool mask_has_rows = false;
};

Sharding shards_of_attention(const ShardContext& c) {
  return row_shards(c, OwnInputs(c, 3, 0).bits);
}

Sharding shards_of_gradient(const ShardContext& c) {
  const OwnInputs own(c, 6, 1);
  if (c.outputs.size() == 3 || own.mask_has_rows) return row_shards(c, own.bits);
  ShardContext heads = c;
  heads.outputs = c.outputs.first(3);
  Sharding sharding = row_shards(heads, own.bits);
  if (sharding.divides()) sharding.outputs.push_back(Division::partial());
  return sharding;
}

std::int64_t keys_of(const AttentionShape& shape, const KernelPointers& p,
                     const AttentionPlaces& places, std::int64_t sample) {
  if (places.lengths == 0) return shape.keys;
  return places.wide ? p.input<std::int64_t>(places.lengths)[sample]
                     : p.input<std::int32_t>(places.lengths)[sample];
}

// Calls each(group) for the heads of all keys and values of all samples.
template <class Each>
void for_each_group(const AttentionShape& shape, const KernelPointers& p,
                    const AttentionPlaces& places, const Node& node, const Each& each) {
  for (std::int64_t sample = 0; sample < shape.batch; ++sample) {
    const std::int64_t keys = keys_of(shape, p, places, sample);
    if (keys < 0 || keys > shape.keys) [[unlikely]]
      kernels::refuse_keys(node, p.first_row() + sample, keys, shape.keys);
    for (std::int64_t head = 0; head < shape.kv_heads; ++head)
      each(HeadGroup{.sample = sample, .kv_head = head, .keys = keys});
  }
}

// Products of all pairs of positions, for q [batch, queries, width] and k [batch, keys, width].
OpWork work_of_pairs(const Shape& q, const Shape& k, int products) {
  return {products * work_elements(q) * work_elements(Shape{k[1]})};
}
// Scores, and the weighted sum of values.
OpWork attention_work(const WorkContext& c) {
  return work_of_pairs(c.inputs[0].shape, c.inputs[1].shape, 2);
}
// Scores again, and the gradients of values, weights, queries and keys.
OpWork attention_grad_work(const WorkContext& c) {
  return work_of_pairs(c.inputs[1].shape, c.inputs[2].shape, 5);
}

template <class P>
const P* optional_input(const KernelPointers& p, std::size_t i) {
  return i > 0 ? p.input<P>(i) : nullptr;
}

std::int64_t bytes_of_element(const KernelPlan& plan) {
  return static_cast<std::int64_t>(size_of(plan.dtype()));
}

template <class T>
using GroupKernel = decltype(kernels::attention_of_group<T>);
template <class T>
using GroupGradKernel = decltype(kernels::attention_grad_of_group<T>);

template <class T>
KernelRun attention_by(GroupKernel<T>& kernel, const KernelPlan& plan,
                       const AttentionShape& shape) {
  return [&kernel, shape, places = kernels::attention_places(plan, 0), &node = plan.node(),
          size = bytes_of_element(plan),
          stored = kernels::StoredElements<T>(plan.dtype())](const KernelPointers& p) {
    const auto [q, k, v] = kernels::heads_at<const char>(
        shape, 0, [&](std::size_t i) { return p.input<char>(i); }, size);
    const kernels::AttentionTensors<T> tensors{.q = q,
                                               .k = k,
                                               .v = v,
                                               .mask = optional_input<void>(p, places.mask),
                                               .y = p.output<void>(0),
                                               .log_sums = p.output<T>(1)};
    for_each_group(shape, p, places, node,
                   [&](const HeadGroup& of) { kernel(shape, stored, tensors, of, p.workspace()); });
  };
}

// The gradient of a mask is added up in T: in the output, or for 16 bits in the scratch memory
// after the first `scratch` bytes.
template <class T>
KernelRun attention_grad_by(GroupGradKernel<T>& kernel, KernelPlan& plan,
                            const AttentionShape& shape, std::int64_t scratch) {
  const std::size_t mask_at = shape.tensors(), y_at = 1 + shape.tensors();
  const std::int64_t masked = plan.outputs() > mask_at ? plan.output(mask_at).shape.elements() : 0;
  const bool apart = is_half(plan.dtype());
  plan.workspace(scratch + (apart ? masked * static_cast<std::int64_t>(sizeof(T)) : 0));
  return [=, &kernel, &node = plan.node(), places = kernels::attention_places(plan, 1),
          size = bytes_of_element(plan),
          stored = kernels::StoredElements<T>(plan.dtype())](const KernelPointers& p) {
    T* d_mask = nullptr;
    if (masked > 0)
      d_mask = apart ? reinterpret_cast<T*>(p.workspace() + scratch) : p.output<T>(mask_at);
    std::fill_n(d_mask, masked, T(0));
    const auto [q, k, v] = kernels::heads_at<const char>(
        shape, 1, [&](std::size_t i) { return p.input<char>(i); }, size);
    const auto [dq, dk, dv] = kernels::heads_at<char>(
        shape, 0, [&](std::size_t i) { return p.output<char>(i); }, size);
    const kernels::AttentionGradTensors<T> tensors{.dy = p.input<void>(0),
                                                   .q = q,
                                                   .k = k,
                                                   .v = v,
                                                   .y = p.input<void>(y_at),
                                                   .mask = optional_input<void>(p, places.mask),
                                                   .log_sums = p.input<T>(y_at + 1),
                                                   .dq = dq,
                                                   .dk = dk,
                                                   .dv = dv,
                                                   .d_mask = d_mask};
    for_each_group(shape, p, places, node,
                   [&](const HeadGroup& of) { kernel(shape, stored, tensors, of, p.workspace()); });
    if (apart && masked > 0) stored.store(d_mask, masked, p.output<void>(mask_at), 0);
  };
}

MaskLayout mask_layout(const TensorType& mask) {
  const Shape& m = mask.shape;
  const std::size_t rank = m.rank();
  MaskLayout layout{.kind = mask.dtype == DType::kBool ? MaskKind::kSeen : MaskKind::kAdded};
  std::int64_t step = m[rank - 1];
  const auto step_of = [&](std::size_t axis) {
    const std::int64_t result = m[axis] == 1 ? 0 : step;
    step *= m[axis];
    return result;
  };
  layout.query_step = step_of(rank - 2);
  if (rank == 4) layout.head_step = step_of(1);
  if (rank >= 3) layout.sample_step = step_of(0);
  return layout;
}

}  // namespace

namespace kernels {
namespace {

bool is_joined(const KernelPlan& plan) {
  return &plan.op() == &kJoinedAttention || &plan.op() == &kJoinedAttentionGrad;
}

}  // namespace

KernelRun attention_on_host(KernelPlan& plan) {
  const AttentionShape shape = attention_shape_of(plan, 0);
  return visit_computed(plan.dtype(), [&]<class T>(T) {
    plan.workspace(attention_workspace<T>(shape));
    return attention_by<T>(attention_of_group<T>, plan, shape);
  });
}

KernelRun attention_reference(KernelPlan& plan) {
  const AttentionShape shape = attention_shape_of(plan, 0);
  return visit_computed(plan.dtype(), [&]<class T>(T) {
    return attention_by<T>(plain_attention_of_group<T>, plan, shape);
  });
}

KernelRun attention_grad_on_host(KernelPlan& plan) {
  const AttentionShape shape = attention_shape_of(plan, 1);
  return visit_computed(plan.dtype(), [&]<class T>(T) {
    return attention_grad_by<T>(attention_grad_of_group<T>, plan, shape,
                                attention_grad_workspace<T>(shape));
  });
}

KernelRun attention_grad_reference(KernelPlan& plan) {
  const AttentionShape shape = attention_shape_of(plan, 1);
  return visit_computed(plan.dtype(), [&]<class T>(T) {
    return attention_grad_by<T>(plain_attention_grad_of_group<T>, plan, shape, 0);
  });
}

AttentionPlaces attention_places(const KernelPlan& plan, std::size_t first) {
  // The gradient also has dy, before q, and y and the logarithms of sums, after v.
  const std::size_t fixed = (is_joined(plan) ? 1 : 3) + 3 * first;
  return attention_places(plan.inputs(), fixed, [&](std::size_t i) { return plan.input(i).dtype; });
}

AttentionShape attention_shape_of(const KernelPlan& plan, std::size_t first) {
  const auto& options = plan.options<AttentionOptions>();
  const Shape& q = plan.input(first).shape;
  const bool joined = is_joined(plan);
  const int kv_heads = kv_heads_of(options);
  const AttentionPlaces places = attention_places(plan, first);
  AttentionShape shape{.batch = q[0],
                       .heads = options.heads,
                       .kv_heads = kv_heads,
                       .queries = q[1],
                       .keys = joined ? q[1] : plan.input(first + 1).shape[1],
                       .head_dim = q[2] / (options.heads + (joined ? 2 * kv_heads : 0)),
                       .causal = options.causal,
                       .window = options.window,
                       .joined = joined};
  shape.scale =
      options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
  if (places.mask > 0) shape.mask = mask_layout(plan.input(places.mask));
  shape.may_see_none =
      places.mask > 0 || places.lengths > 0 || (shape.window > 0 && shape.queries > shape.keys);
  return shape;
}

void refuse_keys(const Node& node, std::int64_t sample, std::int64_t length, std::int64_t keys) {
  throw InvalidArgument(detail::cat(node.describe(), ": length ", length, " of sample ", sample,
                                    " is not in [0, ", keys, "], the number of keys"));
}

}  // namespace kernels

const Op kAttention{.name = "Attention",
                    .inputs = kVariadicInputs,
                    .shape = attention_shape,
                    .gradient = attention_gradient,
                    .missing_grads = true,
                    .heavy = true,
                    .work = attention_work,
                    .shards = shards_of_attention,
                    .fuse = fuse_attention,
                    .cpu = kernels::attention_on_host,
                    .reference = kernels::attention_reference,
                    .half = true,
                    .autocast = Autocast::kCompute};

const Op kAttentionGrad{.name = "AttentionGrad",
                        .inputs = kVariadicInputs,
                        .shape = attention_grad_shape,
                        .gradient = attention_grad_gradient,
                        .missing_grads = true,
                        .heavy = true,
                        .work = attention_grad_work,
                        .shards = shards_of_gradient,
                        .fuse = fuse_attention_gradient,
                        .cpu = kernels::attention_grad_on_host,
                        .reference = kernels::attention_grad_reference,
                        .half = true};
const StoredOptions<AttentionOptions> kStoredAttention(kAttention, kAttentionGrad);

Output attention(Output q, Output k, Output v, AttentionOptions options, AttentionInputs inputs,
                 At at) {
  const auto is_integer = [](Output x) {
    return x.dtype() == DType::kI32 || x.dtype() == DType::kI64;
  };
  std::vector<Output> all{q, k, v};
  if (inputs.mask) {  // one of integers would be taken for lengths
    require(!is_integer(inputs.mask), "Attention (built at ", at.site, "): the mask is ",
            inputs.mask.type(), ", but must be bool, or of the type of the queries; cast it");
    all.push_back(inputs.mask);
  }
  if (inputs.lengths) {
    require(is_integer(inputs.lengths), "Attention (built at ", at.site,
            "): needs lengths i32 or i64 [batch], not ", inputs.lengths.type(), "; cast them");
    all.push_back(inputs.lengths);
  }
  return q.graph().add(kAttention, all, at, NodeOptions(options)).output();
}

Output causal_attention(Output q, Output k, Output v, AttentionOptions options, At at) {
  options.causal = true;
  return attention(q, k, v, options, {}, at);
}

}  // namespace belfry
