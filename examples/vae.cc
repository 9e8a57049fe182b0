// A variational autoencoder (Kingma and Welling 2014) on MNIST. It learns a code of 20 numbers for
// each digit, and to draw the digit from its code. Try: vae --devices=cpu:4 --data_dir=DIR
#include "belfry/belfry.h"
using namespace belfry;

constexpr int kCode = 20;

Output encoder(Tower& tower, Output image) {
  const VariableScope scope(tower.graph(), "encoder");
  const Output x = relu(conv2d(tower, "conv0", image, {.filters = 16, .stride = 2}));
  return flatten(relu(conv2d(tower, "conv1", x, {.filters = 32, .stride = 2})));
}

// The logits of pixels.
Output decoder(Tower& tower, Output code) {
  const VariableScope scope(tower.graph(), "decoder");
  Output x = relu(dense(tower, "fc", code, {.units = 7 * 7 * 32}));
  x = reshape(x, {kUnknownSize, 7, 7, 32});
  x = relu(conv2d_transpose(tower, "up0", x, {.filters = 16, .stride = 2}));
  return conv2d_transpose(tower, "up1", x, {.filters = 1, .stride = 2});
}

Output autoencoder(Tower& tower, Output image, Output /*label*/) {
  const Output x = encoder(tower, image);
  const Output mean = dense(tower, "mean", x, {.units = kCode});
  const Output log_variance = dense(tower, "log_variance", x, {.units = kCode});
  // A row of noise for each image. The gradients of mean and variance go past it.
  const Output noise = random_normal(tower, image, {kCode});
  const Output logits = decoder(tower, mean + exp(0.5 * log_variance) * noise);
  const Output reconstruction =
      reduce_mean(reduce_sum(flatten(sigmoid_cross_entropy(logits, image)), {1}));
  // Of the code's distribution from the standard normal one.
  const Output divergence =
      0.5 * reduce_mean(reduce_sum(exp(log_variance) + square(mean) - log_variance - 1.0, {1}));
  tower.metric("reconstruction", reconstruction);
  tower.metric("divergence", divergence);
  tower.output("code", mean);
  tower.output("drawing", sigmoid(logits));
  return reconstruction + divergence;
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = autoencoder,
                .data = data::mnist,
                .optimizer = adam(1e-3),
                .global_batch_size = 128,
                .epochs = 10});
}
