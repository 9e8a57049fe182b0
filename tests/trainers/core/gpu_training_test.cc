// Training on stand-in GPUs gives the same bits as on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/program/parsed_flags.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace gpu_training_test {

constexpr int kBatch = 4, kSteps = 3;

struct Way {
  const char* trainer;
  const char* allreduce;
  Precision precision = Precision::kF32;
};

// The hash of a trained model. All towers are on devices of one type.
std::string trained(const std::string& model, const char* type, int towers, int logical, Way way) {
  const ModelSpec spec = find_model(model, model == "mnist" ? 28 : 8);
  const auto data = synthetic_data(spec.fields, spec.classes, towers * kBatch, 5);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .aggregation = {.allreduce = way.allreduce},
                         .batch_size = kBatch,
                         .epochs = kSteps,
                         .precision = way.precision,
                         .session = {.threads = 2}};
  options.devices.clear();
  options.session.logical_gpus = logical;
  for (int t = 0; t < towers; ++t) options.devices.push_back(DeviceSpec::local(type, t));
  const auto trainer =
      std::make_unique<Trainer>(find_trainer(way.trainer), std::move(options), *data);
  trainer->train();
  EXPECT_EQ(trainer->steps(), kSteps);
  EXPECT_THAT(differing_replicas(trainer->session(), trainer->graph()), testing::IsEmpty());
  return cat(params_hash(trainer->session(), trainer->graph()), " ",
             state_hash(trainer->session(), trainer->graph()), " ", trainer->metric("loss"));
}

// Drains happen only at the end, when batches are on their way that no step takes. `most`: the
// number of GPUs times that of forms.
void expect_no_drains(const test::StandInGpus& gpus, int most) {
  EXPECT_LE(gpus.calls().drains, FeedSlots::kCount * most);
}

void expect_the_bits_of_cpus(const std::string& model, const std::vector<Way>& ways) {
  for (const Way way : ways) {
    const std::string expected = trained(model, "CPU", 4, 1, way);
    for (const int physical : kThreadSanitized ? std::vector{2} : std::vector{1, 2, 4}) {
      const test::StandInGpus gpus(physical);
      const test::UseGpus use(gpus);
      EXPECT_EQ(trained(model, "GPU", 4, 4 / physical, way), expected)
          << way.allreduce << " in " << name_of(way.precision) << " on " << physical;
      expect_no_drains(gpus, physical);
      EXPECT_GT(gpus.calls().enqueued, 0);
    }
  }
}

TEST(GpuTrainer, LearnsWhatCpusLearnWithEachStrategy) {
  std::vector<Way> ways{{"replicated", "collective"}, {"replicated", "naive"}};
  if (!kSanitized)
    ways.insert(ways.end(), {{"replicated", "hierarchical"},
                             {"replicated", "naive_cpu"},
                             {"parameter_server", "colocate"}});
  expect_the_bits_of_cpus("mnist", ways);
}

// The averages of batch norm are on /cpu:0.
TEST(GpuTrainer, LearnsWhatCpusLearnWithBatchNorm) {
  expect_the_bits_of_cpus("resnet20", {{"replicated", "collective"}});
}

// The first updates are skipped, as the scale is too large. Averages move anyway.
TEST(GpuTrainer, LearnsWhatCpusLearnWithBatchNormOn16Bits) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  expect_the_bits_of_cpus("resnet20", {{"replicated", "collective", Precision::kF16},
                                       {"replicated", "collective", Precision::kBf16}});
}

TEST(GpuTrainer, LearnsWhereGpusDoNotReachEachOther) {
  std::vector strategies{"naive", "shuffle"};
  if (!kSanitized) strategies.insert(strategies.end(), {"hierarchical", "halving_doubling"});
  for (const char* strategy : strategies) {
    const Way way{"replicated", strategy};
    const std::string expected = trained("mnist", "CPU", 4, 1, way);
    for (const int physical : {2, 4}) {
      const test::StandInGpus gpus(physical, false);
      const test::UseGpus use(gpus);
      EXPECT_EQ(trained("mnist", "GPU", 4, 4 / physical, way), expected)
          << strategy << " on " << physical;
      expect_no_drains(gpus, physical);
    }
  }
}

// Sums of NCCL are not canonical.
TEST(GpuTrainer, LearnsWithNccl) {
  const auto loss = [](const std::string& result) {
    return std::stod(result.substr(result.rfind(' ')));
  };
  const double expected = loss(trained("mnist", "CPU", 4, 1, {"replicated", "collective"}));
  for (const int physical : {1, 2, 4}) {
    const test::StandInGpus gpus(physical);
    const test::UseGpus use(gpus);
    EXPECT_NEAR(loss(trained("mnist", "GPU", 4, 4 / physical, {"replicated", "nccl"})), expected,
                1e-3)
        << physical;
    EXPECT_GT(gpus.calls().all_reduces, 0);
    expect_no_drains(gpus, physical);
  }
}

// A run feeds rates to the host at its start, when its batch has already been staged. The last
// batch of an epoch goes to another step.
TEST(GpuTrainer, StagesBatchesOfBothFormsWhileRatesChange) {
  const auto data = smooth_data(8 * kBatch * 3 + 2 * kBatch);
  const auto trained = [&](const char* type, int towers, int logical, int data_workers = 1) {
    TrainerOptions options{
        .model = smooth_model,
        .optimizer = momentum(
            [](const StepInfo& info) { return 0.1 / static_cast<double>(1 + info.step); }, 0.9),
        .batch_size = 8 * kBatch / towers,
        .batches = {.uneven = Uneven::kWeight},
        .data_workers = data_workers,
        .epochs = 3,
        .session = {.logical_gpus = logical, .threads = 2}};
    options.devices.clear();
    for (int t = 0; t < towers; ++t) options.devices.push_back(DeviceSpec::local(type, t));
    options.shards = towers;  // as many as on GPUs
    const auto trainer =
        std::make_unique<Trainer>(find_trainer("replicated"), std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->steps(), 12);
    EXPECT_EQ(trainer->built().batches().forms().size(), 2u);
    return cat(params_hash(trainer->session(), trainer->graph()), " ",
               state_hash(trainer->session(), trainer->graph()), " ", trainer->metric("loss"));
  };
  struct Layout {
    int physical, logical;
  };
  for (const auto& [physical, logical] : {Layout{1, 8}, Layout{1, 1}, Layout{2, 1}}) {
    const int towers = physical * logical;
    test::StandInGpus gpus(physical);
    const test::UseGpus use(gpus);
    const std::string expected = trained("CPU", towers, 1);
    EXPECT_EQ(trained("GPU", towers, logical), expected) << physical << " x " << logical;
    expect_no_drains(gpus, 2 * physical);
    EXPECT_EQ(trained("GPU", towers, logical, 0), expected) << physical << " x " << logical;
  }
}

TEST(GpuTrainer, AsksForDeterministicKernelsByItsFlag) {
  for (const bool given : {false, true}) {
    const test::StandInGpus gpus(2);
    const test::UseGpus use(gpus);
    std::vector<const char*> arguments{"--devices=gpu:2", "--batch_size=4"};
    if (given) arguments.push_back("--deterministic");
    const auto data = smooth_data(4 * kBatch);
    const TrainFlags flags = parse(arguments);
    Trainer(find_trainer(flags.kind), trainer_options(flags, smooth_model, sgd(0.1)), *data)
        .train();
    const test::StandInGpus::Calls calls = gpus.calls();
    EXPECT_GT(given ? calls.deterministic : calls.fastest, 0);
    EXPECT_EQ(given ? calls.fastest : calls.deterministic, 0);
  }
}

// Callbacks may end a training while the next batches are on their way.
TEST(GpuTrainer, StopsWithBatchesStaged) {
  struct Stop final : Callback {
    void after_step(Trainer& trainer, const StepInfo& info) override {
      if (info.step == 1) trainer.stop();
    }
  };
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const auto data = smooth_data(20 * kBatch);
  TrainerOptions options{.model = smooth_model,
                         .optimizer = sgd(0.1),
                         .devices = {DeviceSpec::local("GPU", 0)},
                         .batch_size = kBatch,
                         .callbacks = {std::make_shared<Stop>()},
                         .session = {.threads = 1}};
  const auto trainer =
      std::make_unique<Trainer>(find_trainer("replicated"), std::move(options), *data);
  trainer->train();
  EXPECT_EQ(trainer->steps(), 2);
}

// The moments of 19 layers and 4 towers are one copy, which cuts no segment.
TEST(GpuTrainer, GivesAGpuOneSegmentWithBatchNorm) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  trained("resnet20", "GPU", 4, 4, {"replicated", "collective"});
  EXPECT_EQ(gpus.calls().replays, kSteps - 1);
  EXPECT_EQ(gpus.calls().gathered, 1 + FeedSlots::kCount);  // in the first step, and captured
}

// Only losses are fetched, and nothing else comes to the host, so the device part of a step is one
// segment.
TEST(GpuTrainer, GivesAGpuOneSegmentInEachCanonicalMode) {
  for (const char* allreduce : {"collective", "naive", "hierarchical", "shuffle"}) {
    const test::StandInGpus gpus(1);
    const test::UseGpus use(gpus);
    const auto data = smooth_data(8 * kBatch);
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd(0.1),
                           .aggregation = {.allreduce = allreduce},
                           .batch_size = kBatch,
                           .epochs = 4,
                           .session = {.threads = 1}};
    options.devices.clear();
    options.session.logical_gpus = 8;
    for (int t = 0; t < 8; ++t) options.devices.push_back(DeviceSpec::local("GPU", t));
    const auto trainer =
        std::make_unique<Trainer>(find_trainer("replicated"), std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->steps(), 4);
    EXPECT_EQ(gpus.calls().captures, FeedSlots::kCount) << allreduce;
    EXPECT_EQ(gpus.calls().replays, 3) << allreduce;
  }
}

}  // namespace gpu_training_test
}  // namespace belfry
