#include "belfry/trainers/models/gpt.h"

#include <cmath>
#include <optional>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/gelu.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/silu.h"
#include "belfry/ops/slice.h"
#include "belfry/towers/layers.h"
#include "belfry/trainers/models/classify_impl.h"
#include "belfry/trainers/models/size_flags_impl.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry::models {
namespace {

bool is_llama(const GptSize& size) { return size.architecture == "llama"; }

std::int64_t kv_width(const GptSize& size) {
  return size.kv_heads == 0 ? size.width : size.width / size.heads * size.kv_heads;
}

std::int64_t positions_of(const GptSize& size) {
  return size.positions == 0 ? size.sequence_length : size.positions;
}

int mlp_width(const GptSize& size) {
  if (size.mlp_width > 0) return static_cast<int>(size.mlp_width);
  return static_cast<int>(is_llama(size) ? (size.width * 8 / 3 + 31) / 32 * 32 : 4 * size.width);
}

constexpr double kDeviation = 0.02;
Initializer initial_weights() { return init::normal(kDeviation); }
// Of layers whose result is added to a shortcut, twice per block.
Initializer initial_residual(const GptSize& size) {
  return size.scaled_init
             ? init::normal(kDeviation / std::sqrt(2.0 * static_cast<double>(size.layers)))
             : initial_weights();
}

// The layers of a decoder. Rows are [n * time, width] in dense layers, and [n, time, width] between
// blocks.
struct Decoder {
  Tower& tower;
  const GptSize& size;

  Output norm(std::string_view name, Output x) const;
  Output linear(std::string_view name, Output x, std::int64_t units,
                const Initializer& init = initial_weights()) const;
  Output with_dropout(Output x) const;
  Output mlp(Output rows) const;
  template <class Attend>
  Output block(const std::string& name, Output x, const Attend& attend) const;
  template <class Positioned, class Attend>
  Output logits(Output tokens, const Positioned& positioned, const Attend& attend) const;
};

Output Decoder::norm(std::string_view name, Output x) const {
  if (is_llama(size)) return rms_norm(tower, name, x, {.epsilon = size.norm_epsilon});
  return layer_norm(tower, name, x, {.epsilon = size.norm_epsilon, .bias = size.bias});
}

Output Decoder::linear(std::string_view name, Output x, std::int64_t units,
                       const Initializer& init) const {
  return dense(
      tower, name, x,
      {.units = static_cast<int>(units), .bias = size.bias && !is_llama(size), .init = init});
}

Output Decoder::with_dropout(Output x) const { return dropout(tower, x, size.dropout); }

Output Decoder::mlp(Output rows) const {
  if (is_llama(size)) {
    const Output gate = silu(linear("gate", rows, mlp_width(size)));
    return linear("down", gate * linear("up", rows, mlp_width(size)), size.width,
                  initial_residual(size));
  }
  const GeluForm form = size.gelu == "exact" ? GeluForm::kExact : GeluForm::kByTanh;
  return linear("fc1", gelu(linear("fc0", rows, mlp_width(size)), {.form = form}), size.width,
                initial_residual(size));
}

// Attention, then dense layers, each beside a shortcut. `attend` gets the normalised x and the
// options of attention.
template <class Attend>
Output Decoder::block(const std::string& name, Output x, const Attend& attend) const {
  const VariableScope block(tower.graph(), name);
  const std::int64_t time = x.shape()[1];
  x = x + with_dropout(
              attend(norm("norm0", x), AttentionLayer{.heads = static_cast<int>(size.heads),
                                                      .kv_heads = static_cast<int>(size.kv_heads),
                                                      .bias = size.bias && !is_llama(size),
                                                      .rotary = is_llama(size),
                                                      .base = size.rope_theta,
                                                      .init = initial_weights(),
                                                      .out = initial_residual(size)}));
  const Output y = mlp(reshape(norm("norm1", x), {kUnknownSize, size.width}));
  return x + with_dropout(reshape(y, {kUnknownSize, time, size.width}));
}

// `positioned` makes of the table of positions what is added to the tokens; `attend(i, x, options)`
// is the attention of block i.
template <class Positioned, class Attend>
Output Decoder::logits(Output tokens, const Positioned& positioned, const Attend& attend) const {
  check_gpt_size(size);
  Graph& graph = tower.graph();
  const auto table_of = [&](const char* name, std::int64_t rows) {
    return variable(graph, name, {rows, size.width}, {.initializer = initial_weights()});
  };
  std::optional<Variable> positions;
  if (!is_llama(size)) positions = table_of("positions", positions_of(size));
  const Variable table = table_of("tokens/table", size.vocabulary);
  Output x = gather(table, tokens);
  if (positions) x = x + positioned(*positions);
  x = with_dropout(x);
  for (int i = 0; i < size.layers; ++i)
    x = block(cat("block", i), x,
              [&](Output y, const AttentionLayer& layer) { return attend(i, y, layer); });
  x = reshape(norm("norm", x), {kUnknownSize, size.width});
  return size.tie_embeddings ? matmul(x, table, {.transpose_b = true})
                             : dense(tower, "head", x,
                                     {.units = static_cast<int>(size.vocabulary),
                                      .bias = false,
                                      .init = initial_weights()});
}

}  // namespace

void check_gpt_size(const GptSize& size) {
  const auto check = [](bool holds, std::string_view option, const auto&... text) {
    require_option<OptionMistake>(holds, option, "=", text...);
  };
  const bool known = size.architecture == "gpt2" || is_llama(size);
  check(known, "architecture", size.architecture, " is none of gpt2, llama");
  check(size.gelu == "tanh" || size.gelu == "exact", "gelu", size.gelu, " is none of tanh, exact");
  check(size.layers >= 1, "layers", size.layers, ": a model has at least 1");
  check(size.width >= 1 && size.width <= kLargestSize, "width", size.width, ": it is from 1 to ",
        kLargestSize);
  check(size.heads >= 1 && size.width % size.heads == 0, "heads", size.heads,
        " does not divide the width ", size.width, " (", the_option("width"), ")");
  check(size.kv_heads >= 0 && (size.kv_heads == 0 || size.heads % size.kv_heads == 0), "kv_heads",
        size.kv_heads, " does not divide the ", size.heads, " heads (", the_option("heads"), ")");
  check(!is_llama(size) || size.width / size.heads % 2 == 0, "heads", size.heads,
        ": the rotations of llama need an even width of each head, not ", size.width / size.heads);
  check(size.mlp_width >= 0 && size.mlp_width <= kLargestSize, "mlp_width", size.mlp_width,
        ": it is from 1 to ", kLargestSize, ", or 0 for the usual");
  check(size.sequence_length >= 1, "sequence_length", size.sequence_length, ": it is at least 1");
  check(size.positions == 0 || !is_llama(size), "positions", size.positions,
        " has no use for llama, which has no table of them; leave it out");
  check(size.positions == 0 || size.positions >= size.sequence_length, "positions", size.positions,
        " is below the ", size.sequence_length, " tokens of a sample (",
        the_option("sequence_length"), "); 0 makes as many");
  check(size.vocabulary >= 1, "vocabulary", size.vocabulary, ": a model knows at least 1 token");
  check(is_llama(size) || size.rope_theta == GptSize{}.rope_theta, "rope_theta", size.rope_theta,
        " has no use for gpt2, whose positions are learned; leave it out, or use ",
        option_name("architecture"), "=llama");
}

Output gpt(Tower& tower, Output tokens, Output label, const GptSize& size, double label_smoothing) {
  const Decoder decoder{tower, size};
  const std::int64_t time = tokens.shape()[1];
  require(time <= size.sequence_length, "gpt: ", tokens.type(), " has ", time,
          " tokens in a sequence, but the model takes ", size.sequence_length,
          " (GptSize::sequence_length)");
  const Output logits = decoder.logits(
      tokens,
      [&](Output table) {
        return time == positions_of(size) ? table : slice(table, {0, 0}, {time, size.width});
      },
      [&](int, Output x, const AttentionLayer& layer) {
        return causal_self_attention(tower, "attention", x, layer);
      });
  return classify(tower, logits, reshape(label, {kUnknownSize}), label_smoothing);
}

Output gpt_step(Tower& tower, TokenStep& step, const GptSize& size) {
  for (int i = 0; i < size.layers; ++i)
    step.caches.push_back(key_value_cache(tower, cat("cache", i),
                                          {step.token.shape()[0], step.time, kv_width(size)}));
  return Decoder{tower, size}.logits(
      step.token,
      [&](Output table) {
        return reshape(gather(table, step.position), {kUnknownSize, 1, size.width});
      },
      [&](int i, Output x, const AttentionLayer& layer) {
        return causal_self_attention(tower, "attention", x, layer, step,
                                     step.caches[static_cast<std::size_t>(i)]);
      });
}

namespace {

const std::vector<OwnOption::Choice>& presets() {
  // Sizes of llm.c and nanoGPT (char: smaller), and of "The Llama 3 Herd of Models" (2024),
  // table 3.
  static const std::vector<OwnOption::Choice> all{
      {"char",
       {"architecture=gpt2", "layers=4", "heads=4", "kv_heads=0", "width=128", "mlp_width=0",
        "sequence_length=64", "tie_embeddings=true", "bias=true", "rope_theta=10000",
        "gelu=exact"}},
      {"gpt2-124m",
       {"architecture=gpt2", "layers=12", "heads=12", "kv_heads=0", "width=768", "mlp_width=0",
        "sequence_length=1024", "positions=1024", "vocabulary=50257", "tie_embeddings=true",
        "bias=true", "rope_theta=10000", "gelu=tanh"}},
      {"gpt2-355m",
       {"architecture=gpt2", "layers=24", "heads=16", "kv_heads=0", "width=1024", "mlp_width=0",
        "sequence_length=1024", "positions=1024", "vocabulary=50257", "tie_embeddings=true",
        "bias=true", "rope_theta=10000", "gelu=tanh"}},
      {"llama-tiny",
       {"architecture=llama", "layers=4", "heads=8", "kv_heads=4", "width=256", "mlp_width=0",
        "sequence_length=256", "rope_theta=10000", "tie_embeddings=false"}},
      {"llama-8b",
       {"architecture=llama", "layers=32", "heads=32", "kv_heads=8", "width=4096",
        "mlp_width=14336", "sequence_length=8192", "vocabulary=128256", "tie_embeddings=false",
        "rope_theta=500000"}}};
  return all;
}

}  // namespace

std::vector<OwnOption> gpt_flags(GptSize& size, std::string& preset) {
  return {preset_flag(preset, presets()),
          {.name = "architecture",
           .variable = &size.architecture,
           .text = "learned positions, layer norm, GELU and biases; or rotary positions, RMSNorm, "
                   "SwiGLU and no biases",
           .unit = "NAME",
           .choices = {"gpt2", "llama"}},
          size_flag("layers", size.layers, 1, "blocks of attention and dense layers"),
          size_flag("heads", size.heads, 1, "heads of attention; they divide the width"),
          size_flag("kv_heads", size.kv_heads, 0,
                    "heads of keys and values, which divide `heads`; 0: as many"),
          size_flag("width", size.width, 1, "elements of a token between blocks"),
          size_flag("mlp_width", size.mlp_width, 0,
                    "elements of a token inside the dense layers of a block; 0: 4 times the "
                    "width, or 8/3 for llama, as a multiple of 32"),
          size_flag("sequence_length", size.sequence_length, 1, "tokens of a sample"),
          size_flag("positions", size.positions, 0,
                    "positions that gpt2 learns, at least as many as a sample has tokens; 0: as "
                    "many"),
          {.name = "vocabulary",
           .variable = &size.vocabulary,
           .text = "different tokens that the model knows, at least as many as the data have",
           .range = {"a whole number from 0 to 1114112, as many as Unicode has characters",
                     [](double x) { return x >= 0 && x <= 1114112; }}},
          dropout_flag(size.dropout,
                       "probability that an element of the embeddings, and of what blocks add, is "
                       "zero in a training step"),
          {.name = "tie_embeddings",
           .variable = &size.tie_embeddings,
           .text = "the output layer shares the table of tokens"},
          {.name = "bias", .variable = &size.bias, .text = "biases of layers and norms of gpt2"},
          {.name = "rope_theta",
           .variable = &size.rope_theta,
           .text = "base of the rotations of llama",
           .range = {"a number above 0", [](double x) { return x > 0; }}},
          norm_epsilon_flag(size.norm_epsilon),
          {.name = "gelu",
           .variable = &size.gelu,
           .text = "the activation of gpt2: by its formula, or nearly, by tanh",
           .unit = "FORM",
           .choices = {"exact", "tanh"}},
          {.name = "scaled_init",
           .variable = &size.scaled_init,
           .text = "weights of layers that add to a shortcut begin smaller, by the root of twice "
                   "the layers, as in GPT-2"}};
}

}  // namespace belfry::models
