// Trainings with sequences of unequal length, in batches by length.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/ops/reshape.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/ops/square.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/uneven_support.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/recurrent_layers.h"
#include "belfry/towers/weighted_mean.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/data/length_buckets.h"

namespace belfry {
namespace length_buckets_training_test {

using test::message_of;
using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 50, kLongest = 12;

// Numbers x f64 [12,2] of 1 to 12 times, wanted y f64 [12], and the length. What is beyond it is
// `filling`.
std::unique_ptr<Dataset> sequences(double filling) {
  std::vector<double> x, y;
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const std::int64_t length = 1 + i * 7 % kLongest;
    lengths.push_back(static_cast<std::int32_t>(length));
    for (std::int64_t t = 0; t < kLongest; ++t) {
      const double value = std::sin(static_cast<double>(5 * i + 3 * t));
      x.insert(x.end(), {t < length ? value : filling, t < length ? -value : filling});
      y.push_back(t < length ? value * value : filling);
    }
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorDataset::Source>{
          {"x", Tensor({kSamples, kLongest, 2}, x), DType::kF64, {kLongest, 2}},
          {"y", Tensor({kSamples, kLongest}, y), DType::kF64, {kLongest}},
          {"length", Tensor({kSamples}, lengths), DType::kI32, {}}},
      "sequences");
}

// An LSTM that says a number per time, with the mean over the times that count as its loss.
Output sequence_model(Tower& tower, Output x, Output y, Output length) {
  const std::int64_t time = x.shape()[1];
  const Output states = lstm(tower, "reader", x, {.hidden = 4, .lengths = length}).y;
  const Output said = reshape(dense(tower, "out", states, {.units = 1}), {kUnknownSize, time});
  return weighted_mean(tower, square(said - y), sequence_mask(length, time, DType::kF64));
}

struct BucketRun {
  int devices = 1;
  int data_workers = 1;
  double filling = 0;
  std::vector<std::int64_t> lengths = {4, 8, kLongest};  // none: no buckets
  Uneven uneven = Uneven::kDrop;
  int accumulation = 1;
};

TrainerOptions options_of(const BucketRun& run) {
  TrainerOptions options{.model = sequence_model, .devices = cpus(run.devices)};
  options.batch_size = 8 / run.devices;
  options.epochs = 3;
  options.shards = 4;
  options.optimizer = adam(0.01);
  options.data_workers = run.data_workers;
  options.batches.uneven = run.uneven;
  options.batches.gradient_accumulation_steps = run.accumulation;
  return options;
}

std::unique_ptr<Dataset> data_of(const BucketRun& run) {
  auto data = sequences(run.filling);
  return run.lengths.empty() ? std::move(data)
                             : bucket_by_length(std::move(data), "length", run.lengths);
}

std::string hash_of(const BucketRun& run, const std::shared_ptr<Processes>& processes = nullptr) {
  const auto data = data_of(run);
  TrainerOptions options = options_of(run);
  if (processes) {
    options.batch_size /= processes->size();
    options.session.processes = processes;
    options.session.threads = 1;
  }
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  return state_hash(trainer.session(), trainer.graph());
}

TEST(LengthBucketsTraining, GivesTheSameBitsForAnyDevicesAndDataWorkers) {
  const std::string one = hash_of({});
  EXPECT_EQ(hash_of({.devices = 2}), one);
  EXPECT_EQ(hash_of({.devices = 4, .data_workers = 3}), one);
  EXPECT_EQ(hash_of({.devices = 2, .data_workers = 0}), one);
  EXPECT_NE(hash_of({.lengths = {}}), one) << "without buckets, batches have other samples";
}

TEST(LengthBucketsTraining, GivesTheBitsOfOneProcessInSeveral) {
  const std::string one = hash_of({.devices = 4});
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    EXPECT_EQ(hash_of({.devices = 2}, processes), one);
  });
}

TEST(LengthBucketsTraining, DoesNotLookBeyondTheLengthOfASample) {
  EXPECT_EQ(hash_of({.filling = 7}), hash_of({}));
}

TEST(LengthBucketsTraining, CompilesAStepPerLengthAndTrainsWithEachSample) {
  const BucketRun run{.devices = 2, .uneven = Uneven::kWeight};
  const auto data = data_of(run);
  Trainer trainer(find_trainer("replicated"), options_of(run), *data);
  const BatchPlan& batches = trainer.built().batches();
  ASSERT_EQ(batches.forms().size(), 4u);  // with the last of an epoch, of two samples
  EXPECT_EQ(batches.forms()[0].bucket, 2u);
  EXPECT_EQ(batches.forms()[2].bucket, 0u);
  EXPECT_EQ(batches.samples_per_epoch(), kSamples);
  const TrainedLoss& loss = trainer.built().nodes().losses[0];
  EXPECT_EQ(loss.towers[0].inputs[0].shape()[1], kLongest);
  EXPECT_EQ(loss.towers_of(batches.forms()[2])[1].inputs[0].shape()[1], 4);
  trainer.train();
  EXPECT_TRUE(std::isfinite(trainer.metric("loss")));
}

TEST(LengthBucketsTraining, CountsTheMeanWorkOfItsSteps) {
  const auto data = data_of({});
  const Trainer trainer(find_trainer("replicated"), options_of({}), *data);
  const BatchPlan& batches = trainer.built().batches();
  double sum = 0;
  for (std::int64_t b = 0; b < batches.batches_per_epoch(); ++b)
    sum += step_multiply_adds(trainer.built().nodes(), 1, batches.form_of(b));
  const double mean = mean_step_multiply_adds(trainer.built());
  EXPECT_DOUBLE_EQ(mean, sum / static_cast<double>(batches.batches_per_epoch()));
  EXPECT_LT(mean, step_multiply_adds(trainer.built().nodes()));
}

// As each loss is a mean over what counts, buckets change nothing but the order of samples: a step
// over all of them has the loss of a step without buckets.
TEST(LengthBucketsTraining, HasTheLossOfBatchesThatAreAllOfTheLongest) {
  const auto loss_of = [](std::vector<std::int64_t> lengths) {
    const BucketRun run{.lengths = std::move(lengths)};
    const auto data = data_of(run);
    TrainerOptions options = options_of(run);
    options.batch_size = 1;
    options.shards = 1;
    options.epochs = 1;
    options.optimizer = sgd(0.0);
    struct Losses : Callback {
      double sum = 0;
      void after_step(Trainer& trainer, const StepInfo&) override { sum += trainer.metric("loss"); }
    };
    const auto losses = std::make_shared<Losses>();
    options.callbacks = {losses};
    Trainer trainer(find_trainer("simple"), options, *data);
    trainer.train();
    EXPECT_EQ(trainer.steps(), kSamples);
    return losses->sum;
  };
  EXPECT_NEAR(loss_of({4, 8, kLongest}), loss_of({}), 1e-9);
}

TEST(LengthBucketsTraining, RefusesWhatTakesBatchesOfOneShape) {
  const auto refusal = [](const BucketRun& run, const ModelFunction& model) {
    return message_of<InvalidArgument>([&] {
      const auto data = data_of(run);
      TrainerOptions options = options_of(run);
      options.model = model;
      Trainer(find_trainer("replicated"), options, *data);
    });
  };
  EXPECT_THAT(refusal({.accumulation = 2}, sequence_model),
              HasSubstr("these data make batches by their lengths"));
  const auto with_norm = [](Tower& tower, Output x, Output y, Output length) {
    return sequence_model(tower, batch_norm(tower, "bn", x), y, length);
  };
  EXPECT_THAT(refusal({}, with_norm), HasSubstr("as batch norm does"));
  const auto by_length = [](Tower& tower, Output x, Output y, Output length) {
    variable(tower.graph(), cat("of", x.shape()[1]), {1}, {.dtype = DType::kF64});
    return sequence_model(tower, x, y, length);
  };
  EXPECT_THAT(refusal({}, by_length), HasSubstr("make the same variables for all"));
}

}  // namespace length_buckets_training_test
}  // namespace belfry
