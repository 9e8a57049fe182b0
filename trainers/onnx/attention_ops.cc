#include <cmath>
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/trainers/onnx/op_writers_impl.h"

namespace belfry::onnx {
namespace {

// Attention by products of matrices: ONNX has such an op since opset 23.
class AttentionWriter {
 public:
  AttentionWriter(OnnxGraph& g, const Node& node)
      : g_(g),
        node_(node),
        options_(node.options<AttentionOptions>()),
        kv_heads_(kv_heads_of(options_)),
        head_width_(node.input(0).shape()[2] / options_.heads),
        given_(node.input(0).dtype()),
        dtype_(is_half(given_) ? DType::kF32 : given_) {}

  void write() {
    const std::string q = heads_of(0, options_.heads), k = heads_of(1, kv_heads_);
    const double scale = options_.scale > 0 ? options_.scale : 1 / std::sqrt(head_width_);
    std::string scores = g_.add("MatMul", {scaled(q, scale), g_.transpose(k, {0, 1, 3, 2})});
    find_seen();
    if (!added_.empty()) scores = g_.add("Add", {scores, added_});
    if (!seen_.empty()) scores = g_.add("Where", {seen_, scores, lowest()});
    std::string weights = g_.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    // A query that may see no key gets zeros.
    if (node_.inputs().size() > 3 || options_.window > 0)
      weights = g_.add("Where", {seen_, weights, g_.number(0, dtype_)});
    const std::string y = g_.add("MatMul", {weights, heads_of(2, kv_heads_)});
    const std::string joined =
        g_.reshape(g_.transpose(y, {0, 2, 1, 3}), {0, 0, options_.heads * head_width_});
    g_.set(node_.output(), dtype_ == given_ ? joined : g_.cast(joined, given_));
  }

 private:
  // Input i as [batch, heads, time, width of a head]. Heads of keys and values are repeated.
  std::string heads_of(std::size_t i, std::int64_t heads) {
    std::string x = g_.in(node_.input(i));
    if (dtype_ != given_) x = g_.cast(x, dtype_);
    x = g_.reshape(x, {0, 0, heads, head_width_});
    if (heads < options_.heads) {
      const std::string one = g_.add("Unsqueeze", {x, g_.ints({3})});
      const std::string all =
          g_.add("Expand", {one, g_.ints({1, 1, 1, options_.heads / heads, 1})});
      x = g_.reshape(all, {0, 0, options_.heads, head_width_});
    }
    return g_.transpose(x, {0, 2, 1, 3});
  }
  std::string scaled(const std::string& x, double scale) {
    return g_.add("Mul", {x, g_.number(scale, dtype_)});
  }
  // Less than any score, but finite, so that a row of them has no NaN.
  std::string lowest() { return g_.number(std::numeric_limits<float>::lowest(), dtype_); }

  // 0, 1, ... up to the time of input i: [time].
  std::string times_of(std::size_t i) {
    const std::int64_t time = node_.input(i).shape()[1];
    const std::string end = time != kUnknownSize
                                ? g_.constant(Tensor(time))
                                : g_.add("Gather", {shape_of(g_, g_.in(node_.input(i))),
                                                    g_.constant(Tensor(std::int64_t{1}))});
    return g_.add(
        "Range", {g_.constant(Tensor(std::int64_t{0})), end, g_.constant(Tensor(std::int64_t{1}))});
  }
  void hide_unless(const std::string& seen) {
    seen_ = seen_.empty() ? seen : g_.add("And", {seen_, seen});
  }

  // Sets which scores count, [batch, heads, queries, keys] or what broadcasts to it, and what is
  // added to them.
  void find_seen() {
    if (options_.causal) {
      const std::string queries = g_.add("Unsqueeze", {times_of(0), g_.ints({1})}),
                        keys = times_of(1);
      hide_unless(g_.add("LessOrEqual", {keys, queries}));
      if (options_.window > 0) {
        const std::string end =
            g_.add("Add", {keys, g_.constant(Tensor(std::int64_t{options_.window}))});
        hide_unless(g_.add("Less", {queries, end}));
      }
    }
    for (std::size_t i = 3; i < node_.inputs().size(); ++i) {
      const Output x = node_.input(i);
      if (x.dtype() == DType::kI32 || x.dtype() == DType::kI64)
        add_lengths(x);
      else
        add_mask(x);
    }
  }
  void add_lengths(Output lengths) {
    const std::string ends = g_.reshape(g_.cast(g_.in(lengths), DType::kI64), {-1, 1, 1, 1});
    hide_unless(g_.add("Less", {times_of(1), ends}));
  }
  void add_mask(Output x) {
    std::string mask = g_.in(x);
    if (x.shape().rank() == 3) mask = g_.add("Unsqueeze", {mask, g_.ints({1})});
    if (x.dtype() == DType::kBool) return hide_unless(mask);
    if (dtype_ != given_) mask = g_.cast(mask, dtype_);
    added_ = mask;
    hide_unless(g_.add("Greater", {mask, lowest()}));  // -infinity hides a key
  }

  OnnxGraph& g_;
  const Node& node_;
  const AttentionOptions& options_;
  const std::int64_t kv_heads_, head_width_;
  const DType given_, dtype_;
  std::string seen_, added_;
};

void write_attention(OnnxGraph& g, const Node& node) { AttentionWriter(g, node).write(); }

// Cosines and sines [time, 1, pairs] of RotaryEmbedding.
struct RotationTables {
  RotationTables(std::int64_t time, std::int64_t pairs, const RotaryEmbeddingOptions& options)
      : cosines({time, 1, pairs}, DType::kF32), sines({time, 1, pairs}, DType::kF32) {
    const double sign = options.inverse ? -1 : 1;
    float *cosine = cosines.mutable_data<float>().data(),
          *sine = sines.mutable_data<float>().data();
    for (std::int64_t t = 0; t < time; ++t)
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double share = static_cast<double>(i) / static_cast<double>(pairs);
        const double angle = static_cast<double>(t) * std::pow(options.base, -share);
        *cosine++ = static_cast<float>(std::cos(angle));
        *sine++ = static_cast<float>(sign * std::sin(angle));
      }
  }

  Tensor cosines, sines;
};

void write_rotary_embedding(OnnxGraph& g, const Node& node) {
  const auto& options = node.options<RotaryEmbeddingOptions>();
  const Shape& shape = node.input(0).shape();
  const std::int64_t time = shape[1], width = shape[2] / options.heads;
  if (time == kUnknownSize)
    refuse(node, cat("the time of ", node.input(0).type(), " must be known"));
  const DType dtype = node.output().dtype();
  const RotationTables tables(time, width / 2, options);
  const auto table = [&](const Tensor& values) {
    const std::string name = g.constant(values);
    return dtype == DType::kF32 ? name : g.cast(name, dtype);
  };
  const std::string cosines = table(tables.cosines), sines = table(tables.sines);
  const std::string x = g.reshape(g.in(node.input(0)), {0, 0, options.heads, width});
  const Names half =
      g.add("Split", {x, g.ints({width / 2, width / 2})}, {{"axis", std::int64_t{3}}}, 2);
  const auto product = [&](const std::string& a, const std::string& b) {
    return g.add("Mul", {a, b});
  };
  const std::string low = g.add("Sub", {product(half[0], cosines), product(half[1], sines)});
  const std::string high = g.add("Add", {product(half[1], cosines), product(half[0], sines)});
  const std::string all = g.add("Concat", {low, high}, {{"axis", std::int64_t{3}}});
  g.set(node.output(), g.reshape(all, {0, 0, shape[2]}));
}

}  // namespace

std::vector<OpWriter> attention_writers() {
  return {{&kAttention, write_attention}, {&kRotaryEmbedding, write_rotary_embedding}};
}

}  // namespace belfry::onnx
