// The network of examples/mnist.cc.
#pragma once
#include "belfry/ops/accuracy.h"
#include "belfry/ops/max_pool.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/towers/layers.h"

namespace belfry {

inline Output mnist_convnet(Tower& tower, Output image, Output label) {
  Output x = relu(conv2d(tower, "conv0", image, {.filters = 32, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(conv2d(tower, "conv1", x, {.filters = 64, .kernel = 3}));
  x = max_pool(x, {.window = 2});
  x = relu(dense(tower, "fc0", flatten(x), {.units = 128}));
  const Output logits = dense(tower, "fc1", x, {.units = 10});
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

}  // namespace belfry
