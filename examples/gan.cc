// A deep convolutional generative adversarial network (Radford, Metz and Chintala 2016). A
// generator draws digits from noise, and a discriminator tells them from digits of the data. Each
// step trains the discriminator, and then the generator against it. Try: gan --devices=cpu:4
// --run_dir=runs/gan
#include "belfry/belfry.h"
using namespace belfry;

constexpr int kNoise = 64, kWidth = 16;  // kWidth: channels of 14 x 14 pixels

// Pixels are from -1 to 1.
Output generator(Tower& tower, Output noise) {
  const VariableScope scope(tower.graph(), "gen");
  const Initializer small = init::normal(0.02);
  Output x = dense(tower, "fc", noise, {.units = 7 * 7 * 2 * kWidth, .bias = false, .init = small});
  x = reshape(x, {kUnknownSize, 7, 7, 2 * kWidth});
  x = relu(batch_norm(tower, "bn0", x, {.synchronised = true}));
  x = conv2d_transpose(tower, "up0", x,
                       {.filters = kWidth, .kernel = 4, .stride = 2, .bias = false, .init = small});
  x = relu(batch_norm(tower, "bn1", x, {.synchronised = true}));
  return tanh(
      conv2d_transpose(tower, "up1", x, {.filters = 1, .kernel = 4, .stride = 2, .init = small}));
}

// A tower builds it twice with the same variables: for digits of the data, and for generated ones.
Output discriminator(Tower& tower, Output digit) {
  const VariableScope scope(tower.graph(), "disc", VariableReuse::kCreateOrGet);
  const Initializer small = init::normal(0.02);
  Output x =
      conv2d(tower, "conv0", digit, {.filters = kWidth, .kernel = 4, .stride = 2, .init = small});
  x = conv2d(tower, "conv1", leaky_relu(x, 0.2),
             {.filters = 2 * kWidth, .kernel = 4, .stride = 2, .bias = false, .init = small});
  x = leaky_relu(batch_norm(tower, "bn", x, {.synchronised = true}), 0.2);
  return dense(tower, "fc", flatten(x), {.units = 1, .init = small});
}

// The loss of all logits against one answer: 1 for real, 0 for generated.
Output loss_of(Output logits, double answer) {
  return reduce_mean(sigmoid_cross_entropy(logits, fill_like(logits, answer)));
}

Output gan(Tower& tower, Output image, Output) {
  const Output made = generator(tower, random_normal(tower, image, {kNoise}));  // for each image
  const Output real = discriminator(tower, 2 * image - 1), fake = discriminator(tower, made);
  tower.loss("disc", loss_of(real, 1) + loss_of(fake, 0));
  tower.loss("gen", loss_of(fake, 1));
  tower.output("drawing", 0.5 * made + 0.5);
  return {};
}

int main(int argc, char** argv) {
  const Optimizer slow = adam({.rate = 2e-4, .beta1 = 0.5});
  return train(argc, argv,
               {.model = gan,
                .data = data::mnist,
                .losses = {{.loss = "disc", .variables = {"disc"}, .optimizer = slow},
                           {.loss = "gen", .variables = {"gen"}, .optimizer = slow}},
                .global_batch_size = 128,
                .epochs = 10});
}
