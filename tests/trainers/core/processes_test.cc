// A training of several processes has the bits of one process with as many devices.
#include <atomic>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/ops/cast.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace processes_test {

using ::testing::HasSubstr;

constexpr int kGlobalBatch = 24, kSteps = 6;

// smooth_model with batch norm, whose averages all processes move alike.
Output normalised_model(Tower& tower, Output x, Output y, bool first, bool second) {
  const Output hidden =
      tanh(batch_norm(tower, "bn", dense(tower, "fc0", x, {.units = 5}), {.synchronised = first}));
  const Output wider =
      batch_norm(tower, "bn1", dense(tower, "fc1", hidden, {.units = 3}), {.synchronised = second});
  return reduce_mean(square(dense(tower, "fc2", wider, {.units = 1}) - y));
}

struct Trained {
  std::string hash, state;
  double loss;
  std::string fingerprint = "";  // fingerprint of the run
  bool operator==(const Trained&) const = default;
};

TrainerOptions options_of(int devices, const std::shared_ptr<Processes>& processes,
                          double bucket_mb, ModelFunction model) {
  const int towers = devices * (processes ? processes->size() : 1);
  TrainerOptions options{.model = std::move(model),
                         .optimizer = adam(0.01),
                         .aggregation = {.allreduce = "collective", .bucket_mb = bucket_mb},
                         .batch_size = kGlobalBatch / towers,
                         .epochs = 4,
                         .max_steps = kSteps,
                         .session = {.threads = 1, .processes = processes}};
  options.devices.clear();
  for (int d = 0; d < devices; ++d) options.devices.push_back(DeviceSpec::local("CPU", d));
  return options;
}

Trained train(int devices, const std::shared_ptr<Processes>& processes, double bucket_mb,
              ModelFunction model = smooth_model) {
  const auto data = smooth_data(5 * kGlobalBatch);
  Trainer trainer(find_trainer("replicated"),
                  options_of(devices, processes, bucket_mb, std::move(model)), *data);
  trainer.train();
  return {params_hash(trainer.session(), trainer.graph()),
          state_hash(trainer.session(), trainer.graph()), trainer.metric("loss"),
          trainer.record().fingerprint().str()};
}

class Layouts : public testing::TestWithParam<std::tuple<int, int>> {};

// The result of each process.
std::vector<Trained> train_in(int size, int devices, double bucket_mb, const ModelFunction& model) {
  std::mutex mutex;
  std::vector<Trained> all;
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    const Trained one = train(devices, processes, bucket_mb, model);
    const std::lock_guard lock(mutex);
    all.push_back(one);
  });
  EXPECT_EQ(std::ssize(all), size);
  return all;
}

TEST_P(Layouts, GiveOneHash) {
  const auto [size, devices] = GetParam();
  for (const double bucket_mb : {0.0, 1e-4, 25.0})
    EXPECT_THAT(train_in(size, devices, bucket_mb, smooth_model),
                testing::Each(train(size * devices, nullptr, bucket_mb)))
        << bucket_mb;
}

TEST_P(Layouts, NormaliseAlike) {
  const auto [size, devices] = GetParam();
  for (const auto& [first, second] : {std::pair(false, false), {true, false}, {true, true}}) {
    const ModelFunction model = [first, second](Tower& tower, Output x, Output y) {
      return normalised_model(tower, x, y, first, second);
    };
    EXPECT_THAT(train_in(size, devices, 25, model),
                testing::Each(train(size * devices, nullptr, 25, model)))
        << first << second;
  }
}

// smooth_model in f32, as f64 is not rounded to 16 bits.
Output single_model(Tower& tower, Output x, Output y) {
  const Output hidden = tanh(dense(tower, "fc0", cast(x, DType::kF32), {.units = 5}));
  const Output error = dense(tower, "fc1", hidden, {.units = 1}) - cast(y, DType::kF32);
  return reduce_mean(square(error));
}

// These strategies wrap others. Tensors of single_model have 4 to 80 bytes.
TEST_P(Layouts, CombineInChunksRangesAndPacksAlike) {
  const auto [size, devices] = GetParam();
  const AggregationOptions ways[] = {
      {.allreduce = "collective#2", .bucket_mb = 0},
      {.allreduce = "collective#3", .bucket_mb = 25},
      {.allreduce = "collective#2:20:collective", .bucket_mb = 0},
      {.allreduce = "collective:20:collective#2", .bucket_mb = 25},
      {.allreduce = "collective#2", .small_tensors_kb = 1, .bucket_mb = 1e-4}};
  for (const AggregationOptions& way : ways) {
    const auto result_of = [&](int own, const std::shared_ptr<Processes>& processes) {
      TrainerOptions options = options_of(own, processes, 0, single_model);
      options.aggregation = way;
      const auto data = smooth_data(5 * kGlobalBatch);
      Trainer trainer(find_trainer("replicated"), std::move(options), *data);
      trainer.train();
      return std::pair(state_hash(trainer.session(), trainer.graph()), trainer.metric("loss"));
    };
    const auto alone = result_of(size * devices, nullptr);
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      EXPECT_EQ(result_of(devices, processes), alone) << way.allreduce << " " << way.bucket_mb;
    });
  }
}

// Trains from a scale at which f16 overflows, so that steps are skipped.
Trained train_in_f16(int devices, const std::shared_ptr<Processes>& processes) {
  const auto data = smooth_data(5 * kGlobalBatch);
  TrainerOptions options = options_of(devices, processes, 25, single_model);
  options.precision = Precision::kF16;
  options.loss_scale.initial = 0x1p20;
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  EXPECT_GT(trainer.record().watch().skipped_steps(), 0);
  EXPECT_LT(trainer.record().watch().skipped_steps(), kSteps);
  return {params_hash(trainer.session(), trainer.graph()),
          state_hash(trainer.session(), trainer.graph()), trainer.metric("loss")};
}

TEST_P(Layouts, ScaleLossesAlike) {
  const auto [size, devices] = GetParam();
  const Trained alone = train_in_f16(size * devices, nullptr);
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    EXPECT_EQ(train_in_f16(devices, processes), alone);
  });
}

// A ring adds in another order, which is the same in all processes.
TEST_P(Layouts, TrainAlongARing) {
  const auto [size, devices] = GetParam();
  const Trained alone = train(size * devices, nullptr, 25);
  for (const double bucket_mb : {0.0, 1e-4}) {
    std::mutex mutex;
    std::vector<Trained> all;
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      TrainerOptions options = options_of(devices, processes, bucket_mb, smooth_model);
      options.aggregation.allreduce = "ring";
      const auto data = smooth_data(5 * kGlobalBatch);
      Trainer trainer(find_trainer("replicated"), std::move(options), *data);
      trainer.train();
      const std::lock_guard lock(mutex);
      all.push_back({params_hash(trainer.session(), trainer.graph()),
                     state_hash(trainer.session(), trainer.graph()), trainer.metric("loss")});
    });
    EXPECT_THAT(all, testing::Each(all[0]));
    EXPECT_NEAR(all[0].loss, alone.loss, 1e-4 * alone.loss);
  }
}

// Counts how often each sample is read.
class CountingData final : public Dataset {
 public:
  CountingData(std::unique_ptr<Dataset> data, std::vector<std::atomic<int>>& counts)
      : data_(std::move(data)), counts_(counts) {}
  std::vector<Field> signature() const override { return data_->signature(); }
  std::int64_t size() const override { return data_->size(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    for (const std::int64_t i : indices) ++counts_[static_cast<std::size_t>(i)];
    data_->gather(indices, out);
  }
  std::string describe() const override { return "counted"; }

 private:
  const std::unique_ptr<Dataset> data_;
  std::vector<std::atomic<int>>& counts_;
};

constexpr int kTests = 12 * kGlobalBatch + 5, kTestedEpochs = 2;

// The loss and metric of test data after the last epoch. The data do not fill the last batch.
std::pair<double, double> tested(int devices, const std::shared_ptr<Processes>& processes,
                                 std::vector<std::atomic<int>>& counts) {
  const auto data = smooth_data(2 * kGlobalBatch);
  const CountingData test(smooth_data(kTests), counts);
  Console console(nullptr);
  TrainerOptions options = options_of(devices, processes, 25, smooth_model);
  options.epochs = kTestedEpochs;
  options.callbacks.push_back(std::make_shared<Evaluation>(console));
  Trainer trainer(find_trainer("replicated"), std::move(options), *data, &test);
  trainer.train();
  return {trainer.metric("validation_loss"), trainer.metric("validation_mean_x")};
}

TEST_P(Layouts, EachTestAPartToTheSameLoss) {
  const auto [size, devices] = GetParam();
  std::vector<std::atomic<int>> alone_counts(kTests), counts(kTests);
  const auto alone = tested(size * devices, nullptr, alone_counts);
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    EXPECT_EQ(tested(devices, processes, counts), alone);
  });
  // A checksum reads samples at both ends, too.
  for (std::size_t i = 64; i < kTests - 64; ++i) EXPECT_EQ(counts[i], kTestedEpochs);
}

// With 3 x 2 and 2 x 3, the towers of some processes are no node of the tree.
INSTANTIATE_TEST_SUITE_P(Processes, Layouts,
                         testing::Values(std::tuple(2, 1), std::tuple(2, 2), std::tuple(3, 1),
                                         std::tuple(3, 2), std::tuple(2, 3), std::tuple(4, 2)));

TEST(Processes, AnErrorInOneEndsTheOthers) {
  EXPECT_THAT(message_of<CommError>([&] {
                test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
                  if (processes->rank() == 1) return processes->end_others({.why = "no memory"});
                  train(1, processes, 0);
                });
              }),
              testing::AllOf(HasSubstr("rank 1, "), HasSubstr("no memory")));
}

// Stops the training in rank 1 alone, after a step or an epoch.
struct StopsOne final : Callback {
  StopsOne(std::int64_t s, std::int64_t e) : step(s), epoch(e) {}
  void after_step(Trainer& trainer, const StepInfo& info) override {
    if (info.step == step && trainer.graph().process().rank == 1) trainer.stop();
  }
  void after_epoch(Trainer& trainer, const StepInfo& info) override {
    if (info.epoch == epoch && trainer.graph().process().rank == 1) trainer.stop();
  }
  std::int64_t step, epoch;
};

// The number of steps of all processes, of 20 in 4 epochs.
std::int64_t steps_if_one_stops(std::int64_t step, std::int64_t epoch) {
  std::atomic<std::int64_t> steps = -1;
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    TrainerOptions options = options_of(1, processes, 0, smooth_model);
    options.max_steps = 0;
    options.callbacks = {std::make_shared<StopsOne>(step, epoch)};
    const auto data = smooth_data(5 * kGlobalBatch);
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    trainer.train();
    if (const std::int64_t other = steps.exchange(trainer.steps()); other >= 0) {
      EXPECT_EQ(other, trainer.steps());
    }
  });
  return steps;
}

TEST(Processes, EndAfterTheSameStepIfACallbackStopsOne) {
  EXPECT_EQ(steps_if_one_stops(2, -1), 4);  // the fourth step tells the other
  EXPECT_EQ(steps_if_one_stops(-1, 1), 10);
  EXPECT_EQ(steps_if_one_stops(4, 0), 5);  // an epoch ends there
  EXPECT_EQ(steps_if_one_stops(-1, -1), 20);
}

TEST(Processes, OtherStrategiesAreRefused) {
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
                  const auto data = smooth_data(kGlobalBatch);
                  TrainerOptions options{.model = smooth_model,
                                         .optimizer = sgd(0.1),
                                         .aggregation = {.allreduce = "naive"},
                                         .batch_size = kGlobalBatch / 2,
                                         .session = {.processes = processes}};
                  Trainer(find_trainer("replicated"), std::move(options), *data);
                });
              }),
              HasSubstr("use collective, ring or mpi"));
}

}  // namespace processes_test
}  // namespace belfry
