// A bidirectional encoder (Devlin et al. 2018) of text, by characters. Some of them are hidden or
// replaced, and it learns to say what they were, from those on both sides. Rows have different
// lengths. Try: bert --devices=cpu:2 --data_dir=DIR, with the text in DIR/input.txt.
#include "belfry/belfry.h"
using namespace belfry;

constexpr int kCharacters = 65, kMask = 65, kPadding = 66, kTokens = 67;
constexpr int kTime = 64, kShortest = 16, kWindowsPerEpoch = 3000;
constexpr int kLayers = 2, kHeads = 4, kWidth = 128;
constexpr double kDropRate = 0.1;
constexpr std::int32_t kNotHidden = -100;

// Makes a row of 16 to 64 characters. Of these, 15 in 100 are targets: 12 are hidden, 1.5 become
// any other character, and 1.5 stay. Lengths and targets of training are drawn anew in each epoch.
void hide(MappedSample& sample) {
  const auto below = [&](std::int32_t bound) {
    return static_cast<std::int32_t>(sample.random.below(static_cast<std::uint64_t>(bound)));
  };
  const auto text = sample.from.get<std::int32_t>(0);
  const auto token = sample.to.get<std::int32_t>(0), target = sample.to.get<std::int32_t>(1);
  const std::int32_t length = kShortest + below(kTime - kShortest + 1);
  sample.to.get<std::int32_t>(2)[0] = length;
  for (std::size_t t = 0; t < kTime; ++t) {
    target[t] = kNotHidden;
    token[t] = static_cast<std::int32_t>(t) < length ? text[t] : kPadding;
    if (token[t] == kPadding || below(100) >= 15) continue;
    target[t] = text[t];
    const std::int32_t way = below(10);
    if (way < 9) token[t] = way < 8 ? kMask : below(kCharacters);
  }
}

std::unique_ptr<Dataset> masked_text(const RunDirs& dirs, bool train) {
  static const DatasetFactory text =
      data::text({.length = kTime, .per_epoch = kWindowsPerEpoch, .vocabulary = kCharacters});
  return map_samples(text(dirs, train),
                     {{"tokens", DType::kI32, {kTime}},
                      {"target", DType::kI32, {kTime}},
                      {"length", DType::kI32, {}}},
                     hide);
}

Output layer(Tower& tower, std::string_view name, Output x, int units) {
  return dense(tower, name, x, {.units = units, .init = init::normal(0.02)});
}

Output block(Tower& tower, Output x, Output length) {
  Output y = multi_head_attention(
      tower, "attention", x, {.heads = kHeads, .init = init::normal(0.02)}, {.lengths = length});
  x = layer_norm(tower, "norm0", x + dropout(tower, y, kDropRate));
  y = layer(tower, "fc1", gelu(layer(tower, "fc0", x, 4 * kWidth)), kWidth);
  return layer_norm(tower, "norm1", x + dropout(tower, y, kDropRate));
}

Output bert(Tower& tower, Output tokens, Output target, Output length) {
  Graph& graph = tower.graph();
  const VariableOptions small{.initializer = init::normal(0.02)};
  const Variable table = variable(graph, "tokens/table", {kTokens, kWidth}, small);
  const Variable places = variable(graph, "places", {kTime, kWidth}, small);
  Output x = layer_norm(tower, "norm", gather(table, tokens) + places);
  x = dropout(tower, x, kDropRate);
  for (int i = 0; i < kLayers; ++i) {
    const VariableScope scope(graph, "block" + std::to_string(i));
    x = block(tower, x, length);
  }
  x = layer_norm(tower, "head/norm", gelu(layer(tower, "head/fc", x, kWidth)));
  // The output layer shares the table of tokens.
  const Output logits = matmul(reshape(x, {kUnknownSize, kWidth}), table, {.transpose_b = true}) +
                        variable(graph, "head/b", {kTokens}, {.initializer = init::zeros()});
  const Output wanted = reshape(target, {kUnknownSize});
  const Output losses = sparse_softmax_cross_entropy(logits, wanted, {.ignored = kNotHidden});
  const Output hidden = cast(not_equal(wanted, kNotHidden), DType::kF32);
  tower.output("logits", logits);
  tower.metric("accuracy", metrics::top_k(logits, wanted, 1));
  return weighted_mean(tower, losses, hidden);
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = bert,
                .data = masked_text,
                .optimizer = adamw(scheduled_rate(1e-3, linear_schedule(), 100),
                                   {.beta2 = 0.99, .weight_decay = 0.01}),
                .global_batch_size = 32,
                .epochs = 20});
}
