// A generative adversarial network: a generator that draws digits, and a discriminator that tells
// them from those of the data. Two optimizers, each of its own part of the variables, train them in
// turns on two devices.
#include <cstdio>
#include <random>

#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kBatch = 64, kPixels = 28 * 28, kNoise = 64;  // kBatch: of each tower

Output generator(Tower& tower, Output noise) {
  const VariableScope scope(tower.graph(), "gen");
  Output x = reshape(relu(dense(tower, "fc0", noise, {.units = 7 * 7 * 32})), {kBatch, 7, 7, 32});
  x = relu(conv2d_transpose(tower, "up0", x, {.filters = 16, .kernel = 5, .stride = 2}));
  return sigmoid(flatten(conv2d_transpose(tower, "up1", x, {.filters = 1, .stride = 2})));
}

// Twice per tower: on real digits, and on made ones by the same variables.
Output discriminator(Tower& tower, Output image) {
  const VariableScope scope(tower.graph(), "disc", Reuse::kCreateOrGet);
  Output x = relu(dense(tower, "fc0", image, {.units = 128}));
  return dense(tower, "fc1", x, {.units = 1});
}

// How far all logits are from one answer: 1 for real, 0 for made.
Output loss_of(Output logits, double answer) {
  return reduce_mean(sigmoid_cross_entropy(logits, fill_like(logits, answer)));
}

struct Losses {
  Output disc, gen;
};

// What each part of the variables is trained by: a row per tower.
struct Rows {
  std::vector<std::vector<Gradient>> disc, gen;
};

Losses build(Tower& tower, Rows& rows) {
  Output real = placeholder(tower.graph(), "real", DType::kF32, {kBatch, kPixels});
  Output made = generator(tower, random_normal(tower.graph(), {kBatch, kNoise}));
  const Losses losses{loss_of(discriminator(tower, real), 1) +
                          loss_of(discriminator(tower, stop_gradient(made)), 0),
                      loss_of(discriminator(tower, made), 1)};
  rows.disc.push_back(compute_gradients(losses.disc, tower.trainables("disc")));
  rows.gen.push_back(compute_gradients(losses.gen, tower.trainables("gen")));
  return losses;
}

// Fills a batch with digits of the data, drawn at random.
void draw(std::mt19937& random, const Dataset& data, Tensor& batch) {
  std::uniform_int_distribution<std::int64_t> sample(0, data.size() - 1);
  std::vector<std::int64_t> chosen(kBatch);
  for (std::int64_t& i : chosen) i = sample(random);
  std::vector<std::int32_t> labels(kBatch);
  std::byte* const fields[] = {batch.mutable_raw(), reinterpret_cast<std::byte*>(labels.data())};
  data.gather(chosen, fields);
}

int run() {
  const std::vector<DeviceSpec> devices{"/cpu:0", "/cpu:1"};
  Graph graph;
  Rows rows;
  std::vector<Losses> losses;
  const auto towers = replicate(graph, devices, VariablePolicy::kReplicated,
                                [&](Tower& tower) { losses.push_back(build(tower, rows)); });
  const auto strategy = make_strategy("collective");
  Node& train_disc = apply_gradients(adam({.rate = 2e-4, .beta1 = 0.5, .name = "adam_disc"}),
                                     strategy->reduce(GradientTable(rows.disc)), "train_disc");
  Node& train_gen = apply_gradients(adam({.rate = 2e-4, .beta1 = 0.5, .name = "adam_gen"}),
                                    strategy->reduce(GradientTable(rows.gen)), "train_gen");
  Session session(graph, {.device_count = {{"CPU", 2}}});
  const std::unique_ptr<Dataset> digits = data::mnist({}, true);
  std::vector<FeedType> inputs;
  std::vector<Tensor> batch;
  for (const TowerRecord& tower : towers) {
    inputs.push_back({tower.inputs[0], tower.inputs[0].shape()});
    batch.emplace_back(tower.inputs[0].shape(), DType::kF32);
  }
  const std::vector<Fetch> fetches{train_disc, losses[0].disc};
  CompiledStep& disc = session.prepare(fetches, inputs);
  CompiledStep& gen = session.prepare({train_gen, losses[0].gen});
  std::mt19937 random(1);
  for (int i = 1; i <= 200; ++i) {
    for (Tensor& images : batch) draw(random, *digits, images);
    disc.run(batch);
    gen.run({});
    if (i % 50 == 0)
      std::printf("step %d: losses of discriminator %.4f, of generator %.4f\n", i,
                  disc.fetched(1).item<float>(), gen.fetched(1).item<float>());
  }
  return 0;
}

int main(int argc, char** argv) {
  return run_program_without_flags(argc, argv, "Trains two networks against each other. No flags.",
                                   run);
}
