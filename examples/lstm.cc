// An LSTM of two layers that learns to write, character by character. Try: lstm --devices=cpu:2
// --data_dir=DIR, with the text in DIR/input.txt.
#include <memory>

#include "belfry/belfry.h"
using namespace belfry;

constexpr int kCharacters = 65, kWidth = 64, kHidden = 256;

Output model(Tower& tower, Output token, Output label) {
  const Output x = embedding(tower, "characters", token, {.rows = kCharacters, .width = kWidth});
  const Output y = lstm(tower, "lstm", x, {.hidden = kHidden, .layers = 2, .dropout = 0.2}).y;
  const Output rows = dropout(tower, reshape(y, {kUnknownSize, kHidden}), 0.2);
  const Output logits = dense(tower, "head", rows, {.units = kCharacters});
  const Output next = reshape(label, {kUnknownSize});
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, next));
  return cross_entropy(logits, next);
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = model,
                .data = data::text({.length = 64, .per_epoch = 3000, .vocabulary = kCharacters}),
                .optimizer = adam(2e-3),
                .global_batch_size = 32,
                .epochs = 20,
                .callbacks = {std::make_shared<TextSamples>()}});
}
