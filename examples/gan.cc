// A generative adversarial network. A generator draws digits from noise, and a discriminator tells
// them from digits of the data. Each step trains the discriminator, and then the generator against
// it. Try: gan --devices=cpu:4 --run_dir=runs/gan
#include "belfry/belfry.h"
using namespace belfry;

Output generator(Tower& tower, Output noise) {
  const VariableScope scope(tower.graph(), "gen");
  const Output seed = relu(dense(tower, "fc0", noise, {.units = 7 * 7 * 32}));
  Output x = reshape(seed, {kUnknownSize, 7, 7, 32});
  x = relu(conv2d_transpose(tower, "up0", x, {.filters = 16, .kernel = 5, .stride = 2}));
  return sigmoid(flatten(conv2d_transpose(tower, "up1", x, {.filters = 1, .stride = 2})));
}

// A tower builds it twice with the same variables: for digits of the data, and for generated ones.
Output discriminator(Tower& tower, Output digit) {
  const VariableScope scope(tower.graph(), "disc", VariableReuse::kCreateOrGet);
  const Output x = relu(dense(tower, "fc0", digit, {.units = 128}));
  return dense(tower, "fc1", x, {.units = 1});
}

// The loss of all logits against one answer: 1 for real, 0 for generated.
Output loss_of(Output logits, double answer) {
  return reduce_mean(sigmoid_cross_entropy(logits, fill_like(logits, answer)));
}

Output gan(Tower& tower, Output image, Output) {
  const Output made = generator(tower, random_normal(tower, image, {64}));  // noise for each image
  const Output real = discriminator(tower, flatten(image)), fake = discriminator(tower, made);
  tower.loss("disc", loss_of(real, 1) + loss_of(fake, 0));
  tower.loss("gen", loss_of(fake, 1));
  tower.output("drawing", made);
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
