// Losses with weights of classes, in evaluations and in batches that towers share unequally.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/square.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/towers/weighted_mean.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/util/console.h"

namespace belfry {
namespace weighted_loss_test {

Output model(Tower& tower, Output x, Output label) {
  return cross_entropy(tower, dense(tower, "fc", x, {.units = 3}), label,
                       {.class_weights = {1, 4, 0.5}, .ignored = 2});
}

// The losses after one epoch of training: of its last batch, and of an evaluation.
std::vector<double> losses(int devices, std::int64_t samples, Uneven uneven) {
  const std::vector<Dataset::Field> fields{{"x", DType::kF32, {4}}, {"label", DType::kI32, {}}};
  const auto data = synthetic_data(fields, 3, samples, 1), test = synthetic_data(fields, 3, 53, 2);
  Console console(nullptr);
  Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"),
                  {.model = model,
                   .optimizer = sgd(0.1),
                   .devices = cpus(devices),
                   .batch_size = 16 / devices,
                   .shards = 4,
                   .batches = {.uneven = uneven},
                   .epochs = 1,
                   .callbacks = {std::make_shared<Evaluation>(console)},
                   .session = {.threads = 1}},
                  *data, test.get());
  trainer.train();
  return {trainer.metric("loss"), trainer.metric("validation_loss")};
}

TEST(WeightedLoss, OfAnEvaluationHasTheSameBitsOnAnyNumberOfDevices) {
  const std::vector<double> one = losses(1, 32, Uneven::kDrop);
  for (const double loss : one) EXPECT_TRUE(std::isfinite(loss));
  for (const int devices : {2, 4}) EXPECT_EQ(losses(devices, 32, Uneven::kDrop), one) << devices;
}

// The logits themselves, so that no training moves the losses.
Output reporting_model(Tower& tower, Output x, Output label) {
  const Variable one = variable(tower.graph(), "one", {}, {.initializer = init::ones()});
  const Output logits = x * one;
  const Output loss =
      cross_entropy(tower, logits, label, {.class_weights = {1, 4, 0.5}, .ignored = 2});
  tower.metric("weighted", loss);
  return 0.5 * loss + reduce_mean(square(x)) + 0.25;
}

// By a loop over all samples: the weighted loss, and the loss of the model.
std::vector<double> expected_losses(const Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<Tensor> fields = gather_tensors(data, all);
  const double weights[] = {1, 4, 0};
  double above = 0, below = 0, squares = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    double total = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      const auto x = static_cast<double>(fields[0].data<float>()[3 * i + c]);
      total += std::exp(x);
      squares += x * x;
    }
    const auto label = static_cast<std::size_t>(fields[1].data<std::int32_t>()[i]);
    const auto x = static_cast<double>(fields[0].data<float>()[3 * i + label]);
    above += weights[label] * (std::log(total) - x);
    below += weights[label];
  }
  const auto elements = static_cast<double>(3 * data.size());
  return {above / below, above / below / 2 + squares / elements + 0.25};
}

TEST(WeightedLoss, OfAnEvaluationIsDividedByTheWeightsOfAllSamples) {
  const std::vector<Dataset::Field> fields{{"x", DType::kF32, {3}}, {"label", DType::kI32, {}}};
  const auto data = synthetic_data(fields, 3, 32, 1), test = synthetic_data(fields, 3, 53, 2);
  const std::vector<double> expected = expected_losses(*test);
  for (const int devices : {1, 2}) {
    Console console(nullptr);
    Trainer trainer(find_trainer(devices == 1 ? "simple" : "replicated"),
                    {.model = reporting_model,
                     .optimizer = sgd(1e-30),
                     .devices = cpus(devices),
                     .batch_size = 16 / devices,
                     .shards = 4,
                     .epochs = 1,
                     .callbacks = {std::make_shared<Evaluation>(console)},
                     .session = {.threads = 1}},
                    *data, test.get());
    trainer.train();
    EXPECT_NEAR(trainer.metric("validation_weighted"), expected[0], 1e-6) << devices;
    EXPECT_NEAR(trainer.metric("validation_loss"), expected[1], 1e-6) << devices;
  }
}

// The last batch has 9 samples.
TEST(WeightedLoss, CountsTheSamplesOfUnevenBatchesOnce) {
  const std::vector<double> one = losses(1, 25, Uneven::kWeight);
  for (const int devices : {2, 4}) {
    const std::vector<double> several = losses(devices, 25, Uneven::kWeight);
    EXPECT_NEAR(several[0], one[0], 1e-6) << devices;
    EXPECT_NEAR(several[1], one[1], 1e-6) << devices;
  }
}

}  // namespace weighted_loss_test
}  // namespace belfry
