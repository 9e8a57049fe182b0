// A bidirectional encoder (Devlin et al. 2018) of text, by characters. Some of them are hidden or
// replaced, and it learns to say what they were, from those on both sides. Rows have different
// lengths. Try: bert --devices=cpu:2 --data_dir=DIR, with the text in DIR/input.txt.
#include "belfry/belfry.h"
using namespace belfry;

constexpr int kCharacters = 65, kMask = 65, kPadding = 66, kTokens = 67;
constexpr int kWindowsPerEpoch = 3000;
constexpr double kDropRate = 0.1;
constexpr std::int32_t kNotHidden = -100;

struct Size {
  std::int64_t layers = 2, heads = 4, width = 128;
  std::int64_t time = 64;  // characters of the longest rows; the shortest have a quarter
};

// Makes a row of a quarter of its characters to all. Of these, 15 in 100 are targets: 12 are
// hidden, 1.5 become any other character, and 1.5 stay. Lengths and targets of training are drawn
// anew in each epoch.
void hide(MappedSample& sample) {
  const auto below = [&](std::int32_t bound) {
    return static_cast<std::int32_t>(sample.random.below(static_cast<std::uint64_t>(bound)));
  };
  const auto text = sample.from.get<std::int32_t>(0);
  const auto token = sample.to.get<std::int32_t>(0), target = sample.to.get<std::int32_t>(1);
  const auto time = static_cast<std::int32_t>(text.size()), shortest = time / 4;
  const std::int32_t length = shortest + below(time - shortest + 1);
  sample.to.get<std::int32_t>(2)[0] = length;
  for (std::size_t t = 0; t < text.size(); ++t) {
    target[t] = kNotHidden;
    token[t] = static_cast<std::int32_t>(t) < length ? text[t] : kPadding;
    if (token[t] == kPadding || below(100) >= 15) continue;
    target[t] = text[t];
    const std::int32_t way = below(10);
    if (way < 9) token[t] = way < 8 ? kMask : below(kCharacters);
  }
}

Output layer(Tower& tower, std::string_view name, Output x, std::int64_t units) {
  return dense(tower, name, x, {.units = static_cast<int>(units), .init = init::normal(0.02)});
}

Output block(Tower& tower, Output x, Output length, const Size& size) {
  Output y = multi_head_attention(
      tower, "attention", x, {.heads = static_cast<int>(size.heads), .init = init::normal(0.02)},
      {.lengths = length});
  x = layer_norm(tower, "norm0", x + dropout(tower, y, kDropRate));
  y = layer(tower, "fc1", gelu(layer(tower, "fc0", x, 4 * size.width)), size.width);
  return layer_norm(tower, "norm1", x + dropout(tower, y, kDropRate));
}

Output bert(Tower& tower, Output tokens, Output target, Output length, const Size& size) {
  Graph& graph = tower.graph();
  const VariableOptions small{.initializer = init::normal(0.02)};
  const Variable table = variable(graph, "tokens/table", {kTokens, size.width}, small);
  const Variable places = variable(graph, "places", {size.time, size.width}, small);
  Output x = layer_norm(tower, "norm", gather(table, tokens) + places);
  x = dropout(tower, x, kDropRate);
  for (std::int64_t i = 0; i < size.layers; ++i) {
    const VariableScope scope(graph, "block" + std::to_string(i));
    x = block(tower, x, length, size);
  }
  x = layer_norm(tower, "head/norm", gelu(layer(tower, "head/fc", x, size.width)));
  // The output layer shares the table of tokens.
  const Output logits =
      matmul(reshape(x, {kUnknownSize, size.width}), table, {.transpose_b = true}) +
      variable(graph, "head/b", {kTokens}, {.initializer = init::zeros()});
  const Output wanted = reshape(target, {kUnknownSize});
  const Output losses = sparse_softmax_cross_entropy(logits, wanted, {.ignored = kNotHidden});
  const Output hidden = cast(not_equal(wanted, kNotHidden), DType::kF32);
  tower.output("logits", logits);
  tower.metric("accuracy", metrics::top_k(logits, wanted, 1));
  return weighted_mean(tower, losses, hidden);
}

std::vector<OwnOption> flags_of(Size& size) {
  const OwnOption::Range from_1{"a whole number from 1 to 65536",
                                [](double x) { return x >= 1 && x <= 65536; }};
  const OwnOption::Range from_4{"a whole number from 4 to 65536",
                                [](double x) { return x >= 4 && x <= 65536; }};
  return {{.name = "layers", .variable = &size.layers, .text = "blocks", .range = from_1},
          {.name = "heads",
           .variable = &size.heads,
           .text = "heads of attention, which divide the width",
           .range = from_1},
          {.name = "width", .variable = &size.width, .text = "units of a layer", .range = from_1},
          {.name = "sequence_length",
           .variable = &size.time,
           .text = "characters of the longest rows; the shortest have a quarter",
           .range = from_4}};
}

int main(int argc, char** argv) {
  Size size;
  const auto model = [&](Tower& tower, Output tokens, Output target, Output length) {
    return bert(tower, tokens, target, length, size);
  };
  DatasetFactory text;  // set once flags are read; training and tests share a file
  const auto masked_text = [&](const RunDirs& dirs, bool train) {
    if (!text)
      text = data::text(
          {.length = size.time, .per_epoch = kWindowsPerEpoch, .vocabulary = kCharacters});
    return map_samples(text(dirs, train),
                       {{"tokens", DType::kI32, {size.time}},
                        {"target", DType::kI32, {size.time}},
                        {"length", DType::kI32, {}}},
                       hide);
  };
  return train(argc, argv,
               {.model = model,
                .data = masked_text,
                .optimizer = adamw(scheduled_rate(1e-3, linear_schedule(), 100),
                                   {.beta2 = 0.99, .weight_decay = 0.01}),
                .global_batch_size = 32,
                .epochs = 20,
                .flags = flags_of(size)});
}
