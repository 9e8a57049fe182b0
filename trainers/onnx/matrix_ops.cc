#include <algorithm>
#include <numeric>
#include <utility>

#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/group_norm.h"
#include "belfry/ops/normalization/layer_norm.h"
#include "belfry/ops/pointwise/log_softmax.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reduce_max.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

// With the last two dimensions exchanged.
std::string matrices(OnnxGraph& g, Output x, bool transposed) {
  std::string name = g.in(x);
  if (!transposed) return name;
  Ints order(x.shape().rank());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.back(), order[order.size() - 2]);
  return g.transpose(name, order);
}

void write_matmul(OnnxGraph& g, const Node& node) {
  const auto [transpose_a, transpose_b] = node.options<MatMulOptions>();
  const Output a = node.input(0), b = node.input(1);
  const bool plain = !transpose_a && !transpose_b;
  if (!plain && a.shape().rank() == 2 && b.shape().rank() == 2) {
    const Attributes attributes{{"transA", static_cast<std::int64_t>(transpose_a)},
                                {"transB", static_cast<std::int64_t>(transpose_b)}};
    return g.set(node.output(), g.add("Gemm", {g.in(a), g.in(b)}, attributes));
  }
  g.set(node.output(), g.add("MatMul", {matrices(g, a, transpose_a), matrices(g, b, transpose_b)}));
}

// The layout of the result of a reduction of x, where the one of x can stay.
Layout reduced_layout(const OnnxGraph& g, Output x, const std::vector<bool>& reduced,
                      ReducedAxes kept) {
  if (g.layout_of(x) == Layout::kAsInBelfry) return Layout::kAsInBelfry;
  // Without the channels, or without rows and columns, dimensions are in one order.
  const bool same_order = reduced[3] || (reduced[1] && reduced[2]);
  return kept == ReducedAxes::kKept || same_order ? Layout::kChannelsFirst : Layout::kAsInBelfry;
}

void write_reduction(OnnxGraph& g, const Node& node, const char* op) {
  const auto& [axes, kept] = node.options<ReductionOptions>();
  const Output x = node.input(0);
  const std::vector<bool> reduced = axis_mask(axes, x.shape().rank());
  const Layout layout = reduced_layout(g, x, reduced, kept);
  Ints places;
  for (std::size_t axis = 0; axis < reduced.size(); ++axis)
    if (reduced[axis]) places.push_back(axis_in(layout, axis));
  std::ranges::sort(places);
  Names inputs{g.in(x, layout)};
  Attributes attributes{{"keepdims", std::int64_t{kept == ReducedAxes::kKept}}};
  if (std::string_view(op) == "ReduceSum")  // since opset 13
    inputs.push_back(g.ints(places));
  else
    attributes.push_back({"axes", places});
  const bool is_image = kept == ReducedAxes::kKept;
  g.set(node.output(), g.add(op, inputs, attributes), is_image ? layout : Layout::kAsInBelfry);
}

WriteOp reduction(const char* op) {
  return [op](OnnxGraph& g, const Node& node) { write_reduction(g, node, op); };
}

Attribute epsilon_of(double epsilon) { return {"epsilon", static_cast<float>(epsilon)}; }

void write_layer_norm(OnnxGraph& g, const Node& node) {
  const Attributes attributes{{"axis", std::int64_t{-1}},
                              epsilon_of(node.options<LayerNormOptions>().epsilon)};
  as_node("LayerNormalization", attributes)(g, node);
}

// ONNX has such an op since opset 23.
void write_rms_norm(OnnxGraph& g, const Node& node) {
  const std::string x = g.in(node.input(0));
  const std::string mean = g.add("ReduceMean", {g.add("Mul", {x, x})}, {{"axes", Ints{-1}}});
  const double epsilon = node.options<RmsNormOptions>().epsilon;
  const std::string sum = g.add("Add", {mean, g.number(epsilon, node.output().dtype())});
  const std::string normalised = g.add("Div", {x, g.add("Sqrt", {sum})});
  g.set(node.output(), g.add("Mul", {normalised, g.in(node.input(1))}));
}

// Channels come second in ONNX. `normalise` gets x so, and [c,1,...] for its other dimensions.
template <class Normalise>
void write_with_channels_second(OnnxGraph& g, const Node& node, const Normalise& normalise) {
  const Output x = node.input(0), y = node.output();
  const std::size_t rank = x.shape().rank();
  Ints per_channel(rank - 1, 1);
  per_channel[0] = -1;
  if (rank == 4)
    return g.set(y, normalise(g.in(x, Layout::kChannelsFirst), per_channel),
                 Layout::kChannelsFirst);
  if (rank == 2) return g.set(y, normalise(g.in(x), per_channel));
  Ints there(rank), back(rank);
  std::iota(there.begin(), there.end(), 0);
  back = there;
  std::rotate(there.begin() + 1, there.end() - 1, there.end());
  std::rotate(back.begin() + 1, back.begin() + 2, back.end());
  g.set(y, g.transpose(normalise(g.transpose(g.in(x), there), per_channel), back));
}

void write_batch_norm(OnnxGraph& g, const Node& node) {
  write_with_channels_second(g, node, [&](const std::string& x, const Ints&) {
    Names inputs{x};
    for (std::size_t i = 1; i < 5; ++i) inputs.push_back(g.in(node.input(i)));
    return g.add("BatchNormalization", inputs,
                 {epsilon_of(node.options<BatchNormOptions>().epsilon)});
  });
}

// Groups are the channels of InstanceNormalization: GroupNormalization needs opset 21.
void write_group_norm(OnnxGraph& g, const Node& node) {
  const auto& [groups, epsilon] = node.options<GroupNormOptions>();
  write_with_channels_second(g, node, [&](const std::string& x, const Ints& per_channel) {
    const auto filled = [&](double value) {
      return g.add("Expand", {g.number(value, node.output().dtype()), g.ints({groups})});
    };
    const std::string in_groups = g.reshape(x, {0, groups, -1});
    const std::string normalised =
        g.add("InstanceNormalization", {in_groups, filled(1), filled(0)}, {epsilon_of(epsilon)});
    const std::string whole = g.add("Reshape", {normalised, shape_of(g, x)});
    const std::string scaled = g.add("Mul", {whole, g.reshape(g.in(node.input(1)), per_channel)});
    return g.add("Add", {scaled, g.reshape(g.in(node.input(2)), per_channel)});
  });
}

// The logarithms of probabilities, of which each row takes that of its label.
void write_cross_entropy(OnnxGraph& g, const Node& node) {
  const CrossEntropyOptions& options = node.options<CrossEntropyOptions>();
  const Output y = node.output(), labels = node.input(1);
  const std::string logs = g.add("LogSoftmax", {g.in(node.input(0))}, {{"axis", std::int64_t{-1}}});
  std::string label = g.cast(g.in(labels), DType::kI64), ignored;
  if (options.ignored != kNoLabel) {
    ignored = g.add("Equal", {label, g.ints({options.ignored})});
    label = g.add("Where", {ignored, g.ints({0}), label});
  }
  const std::string picked =
      g.add("GatherElements", {logs, g.reshape(label, {-1, 1})}, {{"axis", std::int64_t{1}}});
  std::string loss = g.add("Neg", {g.reshape(picked, {-1})});
  if (options.smoothing > 0) {
    const std::string mean =
        g.add("ReduceMean", {logs}, {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}});
    const auto share = [&](const std::string& x, double part) {
      return g.add("Mul", {x, g.number(part, y.dtype())});
    };
    loss = g.add("Sub", {share(loss, 1 - options.smoothing), share(mean, options.smoothing)});
  }
  if (!ignored.empty()) loss = g.add("Where", {ignored, g.number(0, y.dtype()), loss});
  g.set(y, loss);
}

}  // namespace

std::vector<OpWriter> matrix_writers() {
  const Attributes last_axis{{"axis", std::int64_t{-1}}};
  return {{&kMatMul, write_matmul},
          {&kMatMulTransposeA, write_matmul},
          {&kBroadcastMatMul, write_matmul},
          {&kReduceSum, reduction("ReduceSum")},
          {&kReduceSumRows, reduction("ReduceSum")},
          {&kReduceMean, reduction("ReduceMean")},
          {&kReduceMeanRows, reduction("ReduceMean")},
          {&kReduceMax, reduction("ReduceMax")},
          {&kReduceMin, reduction("ReduceMin")},
          {&kSoftmax, as_node("Softmax", last_axis)},
          {&kLogSoftmax, as_node("LogSoftmax", last_axis)},
          {&kLogSumExp, as_node("ReduceLogSumExp", {{"axes", Ints{-1}}})},
          {&kSparseSoftmaxCrossEntropy, write_cross_entropy},
          {&kLayerNorm, write_layer_norm},
          {&kRmsNorm, write_rms_norm},
          {&kGroupNorm, write_group_norm},
          {&kBatchNormInference, write_batch_norm}};
}

}  // namespace belfry::onnx
