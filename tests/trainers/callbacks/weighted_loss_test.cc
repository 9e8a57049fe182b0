// Losses with weights of classes, in evaluations and in batches that towers share unequally.
#include <cmath>

#include <gtest/gtest.h>

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
