// Training runs on GPUs that are stood in for: the same bits as on CPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/text.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/small_problem.h"
#include "belfry/trainers/hash.h"
#include "belfry/trainers/models.h"
#include "belfry/trainers/synthetic_data.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace gpu_training_test {

constexpr int kBatch = 4, kSteps = 3;

struct Way {
  const char* trainer;
  const char* allreduce;
};

// The towers' devices are of one type.
std::string trained(const std::string& model, const char* type, int towers, int logical, Way way) {
  const ModelSpec spec = find_model(model, model == "mnist" ? 28 : 8);
  const auto data = synthetic_data(spec.fields, spec.classes, towers * kBatch, 5);
  TrainerOptions options{.model = spec.model,
                         .optimizer = spec.optimizer,
                         .allreduce = way.allreduce,
                         .batch_size = kBatch,
                         .epochs = kSteps,
                         .threads = 2};
  options.devices.clear();
  options.logical_gpus = logical;
  for (int t = 0; t < towers; ++t) options.devices.push_back(DeviceSpec::local(type, t));
  const auto trainer = find_trainer(way.trainer).make(std::move(options), *data, nullptr);
  trainer->train();
  EXPECT_EQ(trainer->steps(), kSteps);
  EXPECT_THAT(differing_replicas(trainer->session(), trainer->graph()), testing::IsEmpty());
  return cat(params_hash(trainer->session(), trainer->graph()), " ",
             state_hash(trainer->session(), trainer->graph()), " ", trainer->metric("loss"));
}

void expect_the_bits_of_cpus(const std::string& model, const std::vector<Way>& ways) {
  for (const Way way : ways) {
    const std::string expected = trained(model, "CPU", 4, 1, way);
    for (const int physical : {1, 2, 4}) {
      const test::StandInGpus gpus(physical);
      const test::UseGpus use(gpus);
      EXPECT_EQ(trained(model, "GPU", 4, 4 / physical, way), expected)
          << way.allreduce << " on " << physical;
      EXPECT_EQ(gpus.calls().drains, 0);
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

// Their averages are on /cpu:0.
TEST(GpuTrainer, LearnsWhatCpusLearnWithBatchNorm) {
  expect_the_bits_of_cpus("resnet20", {{"replicated", "collective"}});
}

// Its sums are no canonical ones.
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
    EXPECT_EQ(gpus.calls().drains, 0);
  }
}

// The device part of a step: only losses are fetched, and nothing else is the host's.
TEST(GpuTrainer, GivesAGpuOneSegmentInEachCanonicalMode) {
  for (const char* allreduce : {"collective", "naive", "hierarchical", "shuffle"}) {
    const test::StandInGpus gpus(1);
    const test::UseGpus use(gpus);
    const auto data = smooth_data(8 * kBatch);
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd(0.1),
                           .allreduce = allreduce,
                           .batch_size = kBatch,
                           .epochs = 4,
                           .threads = 1};
    options.devices.clear();
    options.logical_gpus = 8;
    for (int t = 0; t < 8; ++t) options.devices.push_back(DeviceSpec::local("GPU", t));
    const auto trainer = find_trainer("replicated").make(std::move(options), *data, nullptr);
    trainer->train();
    EXPECT_EQ(trainer->steps(), 4);
    EXPECT_EQ(gpus.calls().captures, 1) << allreduce;
    EXPECT_EQ(gpus.calls().replays, 3) << allreduce;
  }
}

}  // namespace gpu_training_test
}  // namespace belfry
