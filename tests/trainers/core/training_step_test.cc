#include "belfry/trainers/core/training_step.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace training_step_test {

// A trainer with 4 samples per tower. The last batch of an epoch has one sample, which goes to the
// first tower.
std::unique_ptr<Trainer> trainer_on(std::vector<DeviceSpec> devices, const Dataset& data) {
  TrainerOptions options{.model = smooth_model,
                         .optimizer = sgd(0.1),
                         .aggregation = {.allreduce = "naive"},
                         .batch_size = 4,
                         .batches = {.uneven = Uneven::kWeight},
                         .epochs = 2};
  options.devices = std::move(devices);
  return std::make_unique<Trainer>(find_trainer("replicated"), std::move(options), data);
}

TrainingStep step_of(Trainer& trainer, std::size_t form) {
  const TrainingGraph& built = trainer.built().nodes();
  return {trainer.session(), built.losses[0].steps[form], built.losses[0].towers,
          built.losses[0].learning_rates};
}

// The fields of both towers, with so many rows each.
std::vector<Tensor> inputs(std::int64_t first, std::int64_t second) {
  std::vector<Tensor> all;
  for (const std::int64_t rows : {first, second})
    for (const std::int64_t width : {4, 1})
      all.emplace_back(Shape{rows, width},
                       std::vector<double>(static_cast<std::size_t>(rows * width), 1));
  return all;
}

TEST(TrainingStep, OfCpusRunsWithNothingStaged) {
  const auto data = smooth_data(17);
  const auto trainer = trainer_on(cpus(2), *data);
  TrainingStep step = step_of(*trainer, 0);
  EXPECT_FALSE(step.stages());
  EXPECT_FALSE(step.stage({}));  // ignores its arguments
  step.run({}, inputs(4, 4), 0.1);
  EXPECT_GT(step.loss(), 0);
}

TEST(TrainingStep, StagesWhereAGpuTakesABatch) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto data = smooth_data(17);
  const auto trainer =
      trainer_on({DeviceSpec::local("CPU", 0), DeviceSpec::local("GPU", 0)}, *data);
  TrainingStep full = step_of(*trainer, 0), last = step_of(*trainer, 1);
  EXPECT_TRUE(full.stages());
  EXPECT_FALSE(last.stages());  // the tower of the GPU gets no samples
  EXPECT_TRUE(full.stage(inputs(4, 4)));
  EXPECT_FALSE(last.stage(inputs(1, 0)));
  trainer->train();
  EXPECT_EQ(trainer->steps(), 6);
}

}  // namespace training_step_test
}  // namespace belfry
