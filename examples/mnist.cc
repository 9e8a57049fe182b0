// A convolutional network on MNIST. Try: mnist --devices=cpu:4 --data_dir=DIR
#include "belfry/belfry.h"
using namespace belfry;

Output convnet(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(dense(tower, "fc0", flatten(x), {.units = 128}));
  Output logits = dense(tower, "fc1", x, {.units = 10});
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = convnet,
                .data = data::mnist,
                .optimizer = adam(1e-3),
                .batch_size = 64,
                .epochs = 3});
}
