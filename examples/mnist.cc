// A convolutional network on MNIST. Try: mnist --devices=cpu:4 --data_dir=DIR --dropout=0.5
#include "belfry/belfry.h"
using namespace belfry;

Output convnet(Tower& tower, Output image, Output label, double rate, double smoothing) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = dropout(tower, relu(dense(tower, "fc0", flatten(x), {.units = 128})), rate);
  Output logits = dense(tower, "fc1", x, {.units = 10});
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label, {.smoothing = smoothing});
}

int main(int argc, char** argv) {
  double rate = 0, smoothing = 0;
  const auto model = [&](Tower& tower, Output image, Output label) {
    return convnet(tower, image, label, rate, smoothing);
  };
  return train(
      argc, argv,
      {.model = model,
       .data = data::mnist,
       .optimizer = adam(1e-3),
       .global_batch_size = 128,
       .epochs = 3,
       .flags = {{.name = "dropout",
                  .variable = &rate,
                  .text = "probability that a unit of fc0 is zero in a training step",
                  .range = {"a number >= 0 and below 1", [](double x) { return x >= 0 && x < 1; }},
                  .unit = "RATE"},
                 label_smoothing_flag(smoothing)}});
}
