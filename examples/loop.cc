// A training loop without a trainer: towers, their combined gradients, and an update. The step is
// compiled once and then run many times. It learns which points lie inside a circle.
#include <cstdio>
#include <random>

#include "belfry/belfry.h"
using namespace belfry;

constexpr std::int64_t kBatch = 64;  // per tower

void build(Tower& tower) {
  Output points = placeholder(tower.graph(), "points", DType::kF32, {kBatch, 2});
  Output inside = placeholder(tower.graph(), "inside", DType::kI32, {kBatch});
  Output hidden = relu(dense(tower, "hidden", points, {.units = 32}));
  Output logits = dense(tower, "logits", hidden, {.units = 2});
  tower.loss(cross_entropy(logits, inside));
}

// Fills a batch with random points of a square.
void draw(std::mt19937& random, Tensor& points, Tensor& inside) {
  std::uniform_real_distribution<float> coordinate(-1, 1);
  const std::span<float> at = points.mutable_data<float>();
  const std::span<std::int32_t> labels = inside.mutable_data<std::int32_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const float x = at[2 * i] = coordinate(random), y = at[2 * i + 1] = coordinate(random);
    labels[i] = x * x + y * y < 0.5f;
  }
}

int run() {
  const std::vector<DeviceSpec> devices{"/cpu:0", "/cpu:1"};
  Graph graph;
  const auto towers = replicate(graph, devices, VariablePolicy::kReplicated, build);
  GradientRows gradients;
  std::vector<FeedType> inputs;
  std::vector<Tensor> batch;
  for (const TowerRecord& tower : towers) {
    gradients.push_back(compute_gradients(tower.loss, tower.trainables));
    for (Output input : tower.inputs) {
      inputs.push_back({input, input.shape()});
      batch.emplace_back(input.shape(), input.dtype());
    }
  }
  const GradientTable means = make_strategy("collective")->reduce(GradientTable(gradients));
  const std::vector<Fetch> fetches{apply_gradients(adam(1e-2), means), towers[0].loss};
  Session session(graph, {.device_count = {{"CPU", 2}}});
  CompiledStep& step = session.prepare(fetches, inputs);
  std::mt19937 random(1);
  for (int i = 1; i <= 300; ++i) {
    for (std::size_t t = 0; t < towers.size(); ++t) draw(random, batch[2 * t], batch[2 * t + 1]);
    step.run(batch);
    if (i % 100 == 0) std::printf("step %d: loss %.4f\n", i, step.fetched(1).item<float>());
  }
  return 0;
}

int main(int argc, char** argv) {
  return run_program_without_flags(argc, argv, "Trains by a loop of its own. Takes no flags.", run);
}
