// An op, a strategy, a schedule and a callback outside the tree. The program learns whether points
// of a square lie inside a circle. The op is in swish.h, next to its test and its kernel for GPUs.
// Try: own_parts --devices=cpu:4 --allreduce=on_first
#include <cmath>
#include <random>

#include "belfry/belfry.h"
#include "swish.h"
using namespace belfry;

// Adds all gradients up on the first tower's device, in the order of the towers.
class OnFirst final : public Strategy {
  bool canonical(int) const override { return true; }
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    DeviceScope on(grads.graph(), grads.device(0));
    std::vector<Output> sums;
    for (int v = 0; v < grads.variables(); ++v) sums.push_back(add_n(grads.values(v)));
    return std::vector(static_cast<std::size_t>(grads.towers()), sums);
  }
};
const StrategyRegistration on_first{"on_first", [] { return std::make_unique<OnFirst>(); }};

struct StopAt final : Callback {
  explicit StopAt(double accuracy) : wanted(accuracy) {}
  void after_epoch(Trainer& trainer, const StepInfo&) override {
    if (trainer.metric("validation_accuracy") >= wanted) trainer.stop();
  }
  double wanted;
};

double cosine(const StepInfo& info) {
  const auto last = 20.0 * static_cast<double>(info.steps_per_epoch);
  return 0.01 * (1 + std::cos(3.14159265 * static_cast<double>(info.step) / last)) / 2;
}

std::unique_ptr<Dataset> points(bool train) {
  const int n = train ? 8192 : 1024;
  std::mt19937 random(train ? 1 : 2);
  std::uniform_real_distribution<float> coordinate(-1, 1);
  std::vector<float> at;
  std::vector<std::int32_t> inside;
  for (int i = 0; i < n; ++i) {
    const float x = coordinate(random), y = coordinate(random);
    at.insert(at.end(), {x, y});
    inside.push_back(x * x + y * y < 0.5f);
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"at", Tensor({n, 2}, at), DType::kF32, {2}},
                                         {"inside", Tensor({n}, inside), DType::kI32, {}}},
      std::to_string(n) + " random points of a square");
}

Output model(Tower& tower, Output at, Output inside) {
  Output hidden = swish(dense(tower, "hidden", at, {.units = 32}), {.beta = 1.5});
  Output logits = dense(tower, "logits", hidden, {.units = 2});
  tower.metric("accuracy", accuracy(logits, inside));
  return cross_entropy(logits, inside);
}

int main(int argc, char** argv) {
  return train(argc, argv,
               {.model = model,
                .data = points,
                .optimizer = adam({.rate = cosine}),
                .epochs = 20,
                .callbacks = {std::make_shared<StopAt>(0.99)}});
}
