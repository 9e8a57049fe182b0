// Evaluations, and losses of steps, on one device and on several.
#include "belfry/trainers/callbacks/evaluator.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/accuracy.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/console.h"

namespace belfry {
namespace evaluator_test {

// Samples "x" f32 [3], and "label" with three classes.
std::unique_ptr<Dataset> points(std::int64_t samples) {
  std::vector<float> x;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < samples; ++i) {
    for (int j = 0; j < 3; ++j)
      x.push_back(static_cast<float>(std::sin(static_cast<double>(5 * i + 3 * j + 1))));
    labels.push_back(static_cast<std::int32_t>(i * i % 3));
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{{"x", Tensor({samples, 3}, x), DType::kF32, {3}},
                                         {"label", Tensor({samples}, labels), DType::kI32, {}}},
      "points");
}

Output classes(Tower& tower, Output x, Output label) {
  const Output hidden = tanh(dense(tower, "fc0", x, {.units = 7}));
  const Output logits = dense(tower, "fc1", hidden, {.units = 3});
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label);
}

// All metrics after three steps of training.
std::vector<std::pair<std::string, double>> trained(int devices, int global_batch, int shards,
                                                    std::int64_t tests) {
  const auto data = points(96), test = points(tests);
  Console console(nullptr);
  Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"),
                  {.model = classes,
                   .optimizer = sgd(0.1),
                   .devices = cpus(devices),
                   .batch_size = global_batch / devices,
                   .shards = shards,
                   .max_steps = 3,
                   .callbacks = {std::make_shared<Evaluation>(console)},
                   .session = {.threads = 1}},
                  *data, test.get());
  trainer.train();
  std::vector<std::pair<std::string, double>> result;
  for (const auto* const values :
       {&trainer.record().step_metrics(), &trainer.record().set_metrics()})
    for (const NamedValue& value : *values) result.emplace_back(value.name, value.value);
  return result;
}

TEST(Evaluator, GivesTheSameBitsOnAnyNumberOfDevices) {
  for (const std::int64_t tests : {1, 5, 16, 53}) {
    const auto one = trained(1, 16, 4, tests);
    ASSERT_EQ(one.size(), 4u);
    for (const int devices : {2, 4})
      EXPECT_EQ(trained(devices, 16, 4, tests), one) << devices << " devices, " << tests;
  }
}

TEST(Evaluator, TakesAsMuchAtOnceAsShardsDivideEvenly) {
  // 24 samples make shards of six; an evaluation takes four of a shard at once.
  const auto one = trained(1, 24, 4, 53);
  for (std::size_t m : {2, 3}) EXPECT_EQ(trained(2, 24, 4, 53)[m], one[m]);
}

TEST(Evaluator, GivesTheMeanOverAllSamplesHoweverTheyAreDivided) {
  // The weights are the same. Shards and batches change only the last bits.
  const auto expected = trained(1, 16, 1, 53);
  for (const auto& [devices, shards] : {std::pair(1, 4), {2, 2}, {4, 8}, {4, 16}}) {
    const auto metrics = trained(devices, 16, shards, 53);
    for (std::size_t m = 0; m < metrics.size(); ++m)
      EXPECT_NEAR(metrics[m].second, expected[m].second, 1e-5) << metrics[m].first;
  }
}

TEST(TowerMean, AddsAlongTheCanonicalTree) {
  const float values[] = {1e8f, 1, -1e8f, 1, 3};
  const auto value = [&](std::size_t t) { return static_cast<double>(values[t]); };
  const float tree = ((1e8f + 1) + -1e8f) + (1.f + 3.f);
  EXPECT_EQ(tower_mean(5, DType::kF32, value), static_cast<double>(tree) / 5);
  EXPECT_EQ(tower_mean(5, DType::kF64, value), 1.0);
  EXPECT_EQ(tower_mean(1, DType::kF32, value), 1e8);
}

}  // namespace evaluator_test
}  // namespace belfry
