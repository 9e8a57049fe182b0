// A U-Net (Ronneberger, Fischer and Brox 2015) that finds the strokes of MNIST digits under noise,
// by their Dice loss. Try: unet --devices=cpu:4 --data_dir=DIR --up=bilinear
#include "belfry/belfry.h"
using namespace belfry;

struct Size {
  std::int64_t side = 28, levels = 2;
  std::int64_t width = 16;  // channels of the first level
};

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
Output unet(Tower& tower, Output image, const Size& size, bool bilinear) {
  const int levels = static_cast<int>(size.levels), width = static_cast<int>(size.width);
  Output x = image;
  std::vector<Output> found;
  for (int i = 0; i < levels; ++i) {
    found.push_back(two_convs(tower, "down" + std::to_string(i), x, width << i));
    x = max_pool(found.back(), {.window = 2});
  }
  x = two_convs(tower, "bottom", x, width << levels);
  for (int i = levels - 1; i >= 0; --i) {
    x = enlarge(tower, "enlarge" + std::to_string(i), x, width << i, bilinear);
    x = concat({found.back(), x}, -1);
    found.pop_back();
    x = two_convs(tower, "up" + std::to_string(i), x, width << i);
  }
  return conv2d(tower, "head", x, {.filters = 1, .kernel = 1});
}

Output segment(Tower& tower, Output noisy, Output strokes, const Size& size, bool bilinear) {
  const Output drawn = sigmoid(unet(tower, noisy, size, bilinear));
  tower.output("strokes", drawn);
  tower.metric("dice", metrics::dice(cast(greater(drawn, 0.5), DType::kF32), strokes));
  return dice_loss(drawn, strokes);
}

int main(int argc, char** argv) {
  Size size;
  std::string up = "transpose";
  double noise = 0.5;
  const auto model = [&](Tower& tower, Output digit, Output /*label*/) {
    const std::int64_t side = size.side;
    if (side % (std::int64_t{1} << size.levels) != 0)
      throw FlagError("--image_size=" + std::to_string(side) + " cannot be halved " +
                      std::to_string(size.levels) + " times (--levels)");
    const Output image = resize(digit, {.height = side, .width = side}, ResizeMethod::kBilinear);
    const Output strokes = cast(greater(image, 0.5), DType::kF32);
    const Output noisy = image + noise * random_normal(tower, image, {side, side, 1});
    return segment(tower, noisy, strokes, size, up == "bilinear");
  };
  return train(
      argc, argv,
      {.model = model,
       .data = data::mnist,
       .optimizer = adam(1e-3),
       .global_batch_size = 64,
       .epochs = 1,
       .flags = {
           {.name = "up",
            .variable = &up,
            .text = "how images grow on the way up",
            .choices = {"transpose", "bilinear"}},
           {.name = "noise",
            .variable = &noise,
            .text = "standard deviation of the noise in each pixel",
            .range = {"a number >= 0", [](double x) { return x >= 0; }}},
           {.name = "image_size",
            .variable = &size.side,
            .text = "height and width to which digits are resized, pixels",
            .range = {"a whole number from 2 to 4096",
                      [](double x) { return x >= 2 && x <= 4096; }}},
           {.name = "levels",
            .variable = &size.levels,
            .text = "how often images are halved, and doubled again",
            .range = {"a whole number from 1 to 8", [](double x) { return x >= 1 && x <= 8; }}},
           {.name = "width",
            .variable = &size.width,
            .text = "channels of the first level; each level below has twice as many",
            .range = {"a whole number from 1 to 4096",
                      [](double x) { return x >= 1 && x <= 4096; }}}}});
}
