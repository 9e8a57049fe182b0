// A generative adversarial network. A generator draws digits, and a discriminator tells them from
// digits of the data. Two optimizers train both in turns, each its own part, on two devices.
#include <random>

#include "belfry/belfry.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/program/common_fields.h"
#include "belfry/trainers/util/clock.h"
using namespace belfry;

constexpr std::int64_t kBatch = 64, kNoise = 64, kSteps = 200;  // kBatch: per tower

Output generator(Tower& tower, Output noise) {
  const VariableScope scope(tower.graph(), "gen");
  Output x = reshape(relu(dense(tower, "fc0", noise, {.units = 7 * 7 * 32})), {kBatch, 7, 7, 32});
  x = relu(conv2d_transpose(tower, "up0", x, {.filters = 16, .kernel = 5, .stride = 2}));
  return sigmoid(flatten(conv2d_transpose(tower, "up1", x, {.filters = 1, .stride = 2})));
}

// Each tower builds it twice with the same variables: for real digits, and for generated ones.
Output discriminator(Tower& tower, Output image) {
  const VariableScope scope(tower.graph(), "disc", VariableReuse::kCreateOrGet);
  Output x = relu(dense(tower, "fc0", image, {.units = 128}));
  return dense(tower, "fc1", x, {.units = 1});
}

// The loss of all logits against one answer: 1 for real, 0 for generated.
Output loss_of(Output logits, double answer) {
  return reduce_mean(sigmoid_cross_entropy(logits, fill_like(logits, answer)));
}

struct Losses {
  Output disc, gen;
};

// The gradients of each part of the variables, a row per tower.
struct Rows {
  GradientRows disc, gen;
};

Losses build(Tower& tower, Rows& rows) {
  Output real = placeholder(tower.graph(), "real", DType::kF32, {kBatch, 28, 28, 1});
  Output made = generator(tower, random_normal(tower.graph(), {kBatch, kNoise}));
  const Losses losses{loss_of(discriminator(tower, flatten(real)), 1) +
                          loss_of(discriminator(tower, stop_gradient(made)), 0),
                      loss_of(discriminator(tower, made), 1)};
  rows.disc.push_back(compute_gradients(losses.disc, tower.trainables("disc")));
  rows.gen.push_back(compute_gradients(losses.gen, tower.trainables("gen")));
  return losses;
}

// Draws a batch of digits from the data at random.
Tensor draw(std::mt19937& random, const Dataset& data) {
  std::uniform_int_distribution<std::int64_t> sample(0, data.size() - 1);
  std::vector<std::int64_t> chosen(kBatch);
  for (std::int64_t& i : chosen) i = sample(random);
  return gather_tensors(data, chosen)[0];
}

double loss_after(const CompiledStep& step) { return step.fetched(1).item<float>(); }

void run(const std::function<void(const std::string&)>& print, JsonValue& report) {
  const std::vector devices{DeviceSpec::local("CPU", 0), DeviceSpec::local("CPU", 1)};
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
  for (const TowerRecord& tower : towers)
    inputs.push_back({tower.inputs[0], tower.inputs[0].shape()});
  CompiledStep& disc = session.prepare(std::vector<Fetch>{train_disc, losses[0].disc}, inputs);
  CompiledStep& gen = session.prepare({train_gen, losses[0].gen});
  std::mt19937 random(1);
  const double began = seconds_now();
  for (int i = 1; i <= kSteps; ++i) {
    disc.run(std::vector{draw(random, *digits), draw(random, *digits)});
    gen.run({});
    if (i % 50 == 0)
      print(cat("step ", i, ": losses of discriminator ", loss_after(disc), ", of generator ",
                loss_after(gen)));
  }
  const double seconds = seconds_now() - began, samples = 2 * kBatch * kSteps;
  set_session(report.set("seconds", seconds), session, graph, devices);
  set_speed(report, {.examples_per_second = samples / seconds});
  report.set("batch_size", kBatch).set("global_batch_size", 2 * kBatch).set("steps", kSteps);
  report.set("discriminator_loss", loss_after(disc)).set("generator_loss", loss_after(gen));
}

int main(int argc, char** argv) {
  return run_program_with_json(argc, argv, "Trains two networks against each other.", run);
}
