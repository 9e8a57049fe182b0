#include <cmath>
#include <numbers>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/state.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/cos.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/log.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/pointwise/activations.h"
#include "belfry/ops/pointwise/clip.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/pointwise/near_zero.h"
#include "belfry/ops/pointwise/power.h"
#include "belfry/ops/pointwise/rounding.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/sigmoid_cross_entropy.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/sin.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/ops/tanh.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

// Images have channels first where an input has, if vectors are the only other operands.
Layout pointwise_layout(const OnnxGraph& g, const Node& node) {
  bool first = false;
  for (const Output& x : node.inputs()) {
    const std::size_t rank = x.shape().rank();
    if (rank == 2 || rank == 3 || rank > 4) return Layout::kAsInBelfry;
    first = first || g.layout_of(x) == Layout::kChannelsFirst;
  }
  return first ? Layout::kChannelsFirst : Layout::kAsInBelfry;
}

// The inputs in this layout: a vector of channels becomes [c,1,1].
Names operands(OnnxGraph& g, const Node& node, Layout layout) {
  Names names;
  for (const Output& x : node.inputs()) {
    std::string name = g.in(x, layout);
    if (layout == Layout::kChannelsFirst && x.shape().rank() == 1)
      name = g.reshape(name, {-1, 1, 1});
    names.push_back(std::move(name));
  }
  return names;
}

// What a pointwise op makes of its operands, which it gets by their names and type.
struct Operands {
  OnnxGraph& g;
  const Node& node;
  Names names;
  DType dtype;

  const std::string& x() const { return names[0]; }
  std::string number(double value) const { return g.number(value, dtype); }
  std::string add(const char* op, const Names& inputs) const { return g.add(op, inputs); }
};

template <class Write>
WriteOp pointwise(const Write& write) {
  return [write](OnnxGraph& g, const Node& node) {
    const Layout layout = pointwise_layout(g, node);
    const Operands all{g, node, operands(g, node, layout), node.input(0).dtype()};
    g.set(node.output(), write(all), layout);
  };
}

WriteOp pointwise_node(const char* op) {
  return pointwise([op](const Operands& o) { return o.add(op, o.names); });
}

void write_same(OnnxGraph& g, const Node& node) { g.set_same(node.output(), node.input(0)); }

std::string square_of(const Operands& o) { return o.add("Mul", {o.x(), o.x()}); }

std::string silu_of(const Operands& o) { return o.add("Mul", {o.x(), o.add("Sigmoid", {o.x()})}); }

std::string gelu_of(const Operands& o) {
  const auto halved = [&](const std::string& shape) {
    const std::string factor = o.add("Add", {shape, o.number(1)});
    return o.add("Mul", {o.add("Mul", {o.x(), factor}), o.number(0.5)});
  };
  if (o.node.options<GeluOptions>().form == GeluForm::kExact)
    return halved(o.add("Erf", {o.add("Div", {o.x(), o.number(std::numbers::sqrt2)})}));
  const std::string cube = o.add("Mul", {square_of(o), o.x()});
  const std::string sum = o.add("Add", {o.x(), o.add("Mul", {cube, o.number(0.044715)})});
  const double factor = std::sqrt(2 / std::numbers::pi);
  return halved(o.add("Tanh", {o.add("Mul", {sum, o.number(factor)})}));
}

std::string log1p_of(const Operands& o) {
  return o.add("Log", {o.add("Add", {o.x(), o.number(1)})});
}
std::string expm1_of(const Operands& o) {
  return o.add("Sub", {o.add("Exp", {o.x()}), o.number(1)});
}

// max(x, 0) - x z + log(1 + e^-|x|).
std::string sigmoid_cross_entropy_of(const Operands& o) {
  const std::string line =
      o.add("Sub", {o.add("Relu", {o.x()}), o.add("Mul", {o.x(), o.names[1]})});
  return o.add("Add", {line, o.add("Softplus", {o.add("Neg", {o.add("Abs", {o.x()})})})});
}

std::string clip_of(const Operands& o) {
  const auto& [low, high] = o.node.options<ClipOptions>();
  return o.add("Clip", {o.x(), o.number(low), o.number(high)});
}

std::string cast_of(const Operands& o) { return o.g.cast(o.x(), o.node.output().dtype()); }

std::string comparison_of(const Operands& o) {
  const auto compared = [&](const char* op) { return o.add(op, o.names); };
  const auto of_truths = [&](const char* op) {
    Names truths = o.names;
    if (o.dtype != DType::kBool)
      for (std::string& name : truths) name = o.g.cast(name, DType::kBool);
    return o.add(op, truths);
  };
  switch (o.node.options<CompareOptions>().function) {
    case TruthFunction::kEqual: return compared("Equal");
    case TruthFunction::kNotEqual: return o.add("Not", {compared("Equal")});
    case TruthFunction::kLess: return compared("Less");
    case TruthFunction::kLessEqual: return compared("LessOrEqual");
    case TruthFunction::kAnd: return of_truths("And");
    default: return of_truths("Or");
  }
}

std::string activation_of(const Operands& o) {
  const auto& [function, parameter] = o.node.options<ActivationOptions>();
  const auto alpha = static_cast<float>(parameter);
  switch (function) {
    case ActivationFunction::kLeakyRelu: return o.g.add("LeakyRelu", {o.x()}, {{"alpha", alpha}});
    case ActivationFunction::kElu: return o.g.add("Elu", {o.x()}, {{"alpha", alpha}});
    case ActivationFunction::kHardSigmoid:
      return o.g.add("HardSigmoid", {o.x()}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}});
    case ActivationFunction::kHardSwish: return o.add("HardSwish", {o.x()});
    default:
      const std::string beta = o.number(parameter);
      return o.add("Div", {o.add("Softplus", {o.add("Mul", {o.x(), beta})}), beta});
  }
}

void write_fill(OnnxGraph& g, const Node& node) {
  const auto& [shape, value, dtype] = node.options<FillOptions>();
  g.set(node.output(), g.add("Expand", {g.number(value, dtype), g.ints(shape.dims())}));
}

void write_fill_like(OnnxGraph& g, const Node& node) {
  const double value = node.options<FillLikeOptions>().value;
  const std::string shape = shape_of(g, g.in(node.input(0)));
  g.set(node.output(), g.add("Expand", {g.number(value, node.output().dtype()), shape}));
}

// A form that draws its own numbers: ONNX says nothing about their bits.
template <class RandomOptions>
WriteOp random_numbers(const char* op, Attributes (*range)(const Node&, const RandomOptions&)) {
  return [op, range](OnnxGraph& g, const Node& node) {
    const auto& options = node.options<RandomOptions>();
    Attributes attributes = range(node, options);
    attributes.push_back({"dtype", onnx_type(options.dtype)});
    if (node.inputs().empty()) {
      attributes.push_back({"shape", options.shape.dims()});
      return g.set(node.output(), g.add(op, {}, attributes));
    }
    // A row for each sample of the input.
    const std::string samples = g.add("Shape", {g.in(node.input(0))},
                                      {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}});
    const std::string shape =
        g.add("Concat", {samples, g.ints(options.shape.dims())}, {{"axis", std::int64_t{0}}});
    const std::string like = g.add("Expand", {g.number(0, options.dtype), shape});
    g.set(node.output(), g.add(cat(op, "Like"), {like}, attributes));
  };
}

Attributes range_of_normal(const Node& node, const RandomNormalOptions& options) {
  if (options.truncated) refuse(node, "ONNX has no truncated normal distribution");
  return {{"mean", 0.0f}, {"scale", static_cast<float>(options.stddev)}};
}

Attributes range_of_uniform(const Node&, const RandomUniformOptions& options) {
  return {{"low", static_cast<float>(options.low)}, {"high", static_cast<float>(options.high)}};
}

}  // namespace

std::vector<OpWriter> pointwise_writers() {
  return {{&kRead, write_same},
          {&kIdentity, write_same},
          {&kStopGradient, write_same},
          {&kFill, write_fill},
          {&kFillLike, write_fill_like},
          {&kRandomNormal, random_numbers("RandomNormal", range_of_normal)},
          {&kRandomUniform, random_numbers("RandomUniform", range_of_uniform)},
          {&kAddN, pointwise_node("Sum")},
          {&kAdd, pointwise_node("Add")},
          {&kSub, pointwise_node("Sub")},
          {&kMul, pointwise_node("Mul")},
          {&kDiv, pointwise_node("Div")},
          {&kPow, pointwise_node("Pow")},
          {&kMaximum, pointwise_node("Max")},
          {&kMinimum, pointwise_node("Min")},
          {&kWhere, pointwise_node("Where")},
          {&kCompare, pointwise(comparison_of)},
          {&kCast, pointwise(cast_of)},
          {&kNeg, pointwise_node("Neg")},
          {&kAbs, pointwise_node("Abs")},
          {&kSign, pointwise_node("Sign")},
          {&kFloor, pointwise_node("Floor")},
          {&kCeil, pointwise_node("Ceil")},
          {&kRound, pointwise_node("Round")},
          {&kClip, pointwise(clip_of)},
          {&kSquare, pointwise(square_of)},
          {&kSqrt, pointwise_node("Sqrt")},
          {&kExp, pointwise_node("Exp")},
          {&kExpm1, pointwise(expm1_of)},
          {&kLog, pointwise_node("Log")},
          {&kLog1p, pointwise(log1p_of)},
          {&kSin, pointwise_node("Sin")},
          {&kCos, pointwise_node("Cos")},
          {&kTanh, pointwise_node("Tanh")},
          {&kErf, pointwise_node("Erf")},
          {&kSigmoid, pointwise_node("Sigmoid")},
          {&kSigmoidCrossEntropy, pointwise(sigmoid_cross_entropy_of)},
          {&kRelu, pointwise_node("Relu")},
          {&kSilu, pointwise(silu_of)},
          {&kGelu, pointwise(gelu_of)},
          {&kActivate, pointwise(activation_of)}};
}

}  // namespace belfry::onnx
