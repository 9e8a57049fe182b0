// A U-Net (Ronneberger, Fischer and Brox 2015) that finds the strokes of MNIST digits under noise,
// by their Dice loss. Try: unet --devices=cpu:4 --data_dir=DIR --up=bilinear
#include "belfry/belfry.h"
using namespace belfry;

constexpr int kSide = 28, kLevels = 2, kWidth = 16;  // kWidth: channels of the first level

// Two convolutions, normalised over the batches of all devices.
Output two_convs(Tower& tower, std::string_view name, Output x, int filters) {
  const VariableScope scope(tower.graph(), name);
  for (const std::string conv : {"conv0", "conv1"}) {
    x = conv2d(tower, conv, x, {.filters = filters, .bias = false, .init = init::he_normal()});
    x = relu(batch_norm(tower, conv + "/bn", x, {.synchronised = true}));
  }
  return x;
}

// Twice as large, with half of the channels.
Output enlarge(Tower& tower, const std::string& name, Output x, int filters, bool bilinear) {
  if (!bilinear)
    return conv2d_transpose(tower, name, x, {.filters = filters, .kernel = 2, .stride = 2});
  const std::int64_t side = 2 * x.shape()[1];
  x = resize(x, {.height = side, .width = side}, ResizeMethod::kBilinear);
  return conv2d(tower, name, x, {.filters = filters, .kernel = 1});
}

// The logits of pixels. Each level on the way up also sees what it found on the way down.
Output unet(Tower& tower, Output image, bool bilinear) {
  Output x = image;
  std::vector<Output> found;
  for (int i = 0; i < kLevels; ++i) {
    found.push_back(two_convs(tower, "down" + std::to_string(i), x, kWidth << i));
    x = max_pool(found.back(), {.window = 2});
  }
  x = two_convs(tower, "bottom", x, kWidth << kLevels);
  for (int i = kLevels - 1; i >= 0; --i) {
    x = enlarge(tower, "enlarge" + std::to_string(i), x, kWidth << i, bilinear);
    x = concat({found.back(), x}, -1);
    found.pop_back();
    x = two_convs(tower, "up" + std::to_string(i), x, kWidth << i);
  }
  return conv2d(tower, "head", x, {.filters = 1, .kernel = 1});
}

Output segment(Tower& tower, Output noisy, Output strokes, bool bilinear) {
  const Output drawn = sigmoid(unet(tower, noisy, bilinear));
  tower.output("strokes", drawn);
  tower.metric("dice", metrics::dice(cast(greater(drawn, 0.5), DType::kF32), strokes));
  return dice_loss(drawn, strokes);
}

int main(int argc, char** argv) {
  std::string up = "transpose";
  double noise = 0.5;
  const auto model = [&](Tower& tower, Output image, Output /*label*/) {
    const Output strokes = cast(greater(image, 0.5), DType::kF32);
    const Output noisy = image + noise * random_normal(tower, image, {kSide, kSide, 1});
    return segment(tower, noisy, strokes, up == "bilinear");
  };
  return train(argc, argv,
               {.model = model,
                .data = data::mnist,
                .optimizer = adam(1e-3),
                .global_batch_size = 64,
                .epochs = 1,
                .flags = {{.name = "up",
                           .variable = &up,
                           .text = "how images grow on the way up",
                           .choices = {"transpose", "bilinear"}},
                          {.name = "noise",
                           .variable = &noise,
                           .text = "standard deviation of the noise in each pixel",
                           .range = {"a number >= 0", [](double x) { return x >= 0; }}}}});
}
