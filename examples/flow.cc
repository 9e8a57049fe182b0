// A normalizing flow (RealNVP; Dinh, Sohl-Dickstein and Bengio 2017) on MNIST. Layers that can be
// inverted turn digits into normal noise, so the flow knows how likely a digit is; backwards they
// turn noise into digits. Try: flow --devices=cpu:4 --data_dir=DIR
#include <cmath>
#include <numbers>

#include "belfry/belfry.h"
using namespace belfry;

constexpr int kPixels = 28 * 28, kHidden = 512, kLayers = 6;
constexpr double kMargin = 0.05;  // of pixels from 0 and 1, whose logits are infinite

// One half of the pixels stays, and says how the other is stretched and moved.
struct Coupling {
  Output moved;  // 1 for pixels that do not stay
  Output log_scale, shift;
};

// Layer `i` lets the even pixels stay, or the odd ones. Both directions use its variables.
Coupling coupling(Tower& tower, int i, Output x) {
  Graph& graph = tower.graph();
  const VariableScope scope(graph, "coupling" + std::to_string(i), VariableReuse::kCreateOrGet);
  std::vector<float> halves(kPixels);
  for (int pixel = 0; pixel < kPixels; ++pixel) halves[pixel] = (pixel + i) % 2;
  const Output moved = constant(graph, Tensor({kPixels}, halves));
  Output y = relu(dense(tower, "fc0", (1 - moved) * x, {.units = kHidden}));
  y = relu(dense(tower, "fc1", y, {.units = kHidden}));
  y = dense(tower, "fc2", y, {.units = 2 * kPixels, .init = init::zeros()});
  const std::vector<Output> both = split(y, 2, 1);
  return {.moved = moved, .log_scale = moved * tanh(both[0]), .shift = moved * both[1]};
}

// Bits per pixel, by the density of x [n,kPixels] from 0 to 1, which the flow turns into noise.
Output bits(Tower& tower, Output x) {
  x = kMargin + (1 - 2 * kMargin) * x;
  // The logarithm of what all steps stretch a small volume by.
  Output stretch = -reduce_sum(log(x) + log(1 - x), {1}) + kPixels * std::log(1 - 2 * kMargin);
  x = log(x) - log(1 - x);
  for (int i = 0; i < kLayers; ++i) {
    const Coupling layer = coupling(tower, i, x);
    x = x * exp(layer.log_scale) + layer.shift;
    stretch = stretch + reduce_sum(layer.log_scale, {1});
  }
  const double of_zero = -0.5 * std::log(2 * std::numbers::pi) * kPixels;
  const Output log_density = of_zero - 0.5 * reduce_sum(square(x), {1}) + stretch;
  return reduce_mean(8 - log_density / (kPixels * std::numbers::ln2));
}

// Digits from noise x [n,kPixels].
Output drawn(Tower& tower, Output x) {
  for (int i = kLayers - 1; i >= 0; --i) {
    const Coupling layer = coupling(tower, i, x);
    x = (x - layer.shift) * exp(-layer.log_scale);
  }
  return (sigmoid(x) - kMargin) / (1 - 2 * kMargin);
}

Output flow(Tower& tower, Output image, Output /*label*/) {
  // Pixels have 256 values; with noise they have a density.
  const Output noise = random_uniform(tower, image, {kPixels});
  const Output loss = bits(tower, (255 * flatten(image) + noise) / 256);
  tower.output("drawing", drawn(tower, random_normal(tower, image, {kPixels})));
  return loss;
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = flow,
                .data = data::mnist,
                .optimizer = adam(5e-4),
                .global_batch_size = 128,
                .epochs = 10});
}
