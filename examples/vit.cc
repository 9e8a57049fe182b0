// A vision transformer (Dosovitskiy et al. 2021) on CIFAR-10: an image is a row of patches, read
// like a sentence of words. Try: vit --devices=cpu:4 --data_dir=DIR --dropout=0.1
#include "belfry/belfry.h"
using namespace belfry;

constexpr int kSide = 32, kPatch = 4, kPatches = (kSide / kPatch) * (kSide / kPatch);
constexpr int kWidth = 64, kHeads = 4, kBlocks = 4;

Output encoder_block(Tower& tower, std::string_view name, Output x, double rate) {
  const VariableScope scope(tower.graph(), name);
  const Output y = layer_norm(tower, "norm0", x);
  x = x + dropout(tower, multi_head_attention(tower, "attention", y, {.heads = kHeads}), rate);
  Output z = dense(tower, "fc0", layer_norm(tower, "norm1", x), {.units = 4 * kWidth});
  z = dense(tower, "fc1", dropout(tower, gelu(z), rate), {.units = kWidth});
  return x + dropout(tower, z, rate);
}

// Places of patches and the class token are learned.
Output vit(Tower& tower, Output image, double rate) {
  Graph& graph = tower.graph();
  const Output patches = reshape(
      conv2d(tower, "patches", image, {.filters = kWidth, .kernel = kPatch, .stride = kPatch}),
      {kUnknownSize, kPatches, kWidth});
  const Output token =
      variable(graph, "class_token", {1, 1, kWidth}, {.initializer = init::normal(0.02)});
  const Output places =
      variable(graph, "places", {kPatches + 1, kWidth}, {.initializer = init::normal(0.02)});
  // One token for each image.
  const Output tokens = broadcast_to(token, slice(patches, {0, 0, 0}, {-1, 1, -1}));
  Output x = dropout(tower, concat({tokens, patches}, 1) + places, rate);
  for (int i = 0; i < kBlocks; ++i) x = encoder_block(tower, "block" + std::to_string(i), x, rate);
  x = layer_norm(tower, "norm", slice(x, {0, 0, 0}, {-1, 1, -1}));
  return dense(tower, "head", flatten(x), {.units = 10});
}

Output classify(Tower& tower, Output image, Output label, double rate) {
  const Output logits = vit(tower, image, rate);
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

int main(int argc, char** argv) {
  double rate = 0;
  const auto model = [&](Tower& tower, Output image, Output label) {
    return classify(tower, image, label, rate);
  };
  return train(
      argc, argv,
      {.model = model,
       .data = data::cifar10,
       .optimizer = adamw(scheduled_rate(1e-3, cosine_schedule(), 100), {.weight_decay = 0.05}),
       .global_batch_size = 64,
       .epochs = 10,
       .flags = {{.name = "dropout",
                  .variable = &rate,
                  .text = "probability that an element is zero in a training step",
                  .range = {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }},
                  .unit = "RATE"}}});
}
