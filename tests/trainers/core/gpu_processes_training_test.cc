// Trainings of several processes on stand-in GPUs, with a stand-in for NCCL.
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/stand_in_communicators.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace gpu_processes_training_test {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int kGlobalBatch = 24, kSteps = 4;
using Group = std::shared_ptr<Processes>;

// The model computes in f32, as f64 is not rounded to 16 bits. It has averages, which live on
// hosts.
Output model_with(bool synchronised, Tower& tower, Output x, Output y) {
  const Output wide = dense(tower, "fc0", cast(x, DType::kF32), {.units = 5});
  const Output hidden = tanh(batch_norm(tower, "bn", wide, {.synchronised = synchronised}));
  const Output error = dense(tower, "fc1", hidden, {.units = 1}) - cast(y, DType::kF32);
  return reduce_mean(square(error));
}

Output normalised_model(Tower& tower, Output x, Output y) { return model_with(false, tower, x, y); }

Output synchronised_model(Tower& tower, Output x, Output y) {
  return model_with(true, tower, x, y);
}

TrainerOptions options_of(int devices, const Group& processes, double bucket_mb,
                          const std::string& allreduce = "nccl") {
  const ProcessPlace place = processes ? processes->place() : ProcessPlace();
  TrainerOptions options{.model = normalised_model,
                         .optimizer = adam(0.01),
                         .aggregation = {.allreduce = allreduce, .bucket_mb = bucket_mb},
                         .batch_size = kGlobalBatch / (devices * place.size),
                         .epochs = 4,
                         .max_steps = kSteps,
                         .session = {.threads = 1, .processes = processes}};
  options.devices.clear();
  for (int d = 0; d < devices; ++d) {
    options.devices.push_back(DeviceSpec::local("GPU", d));
    options.session.visible_devices += cat(d > 0 ? "," : "", place.rank * devices + d);
  }
  return options;
}

std::string trained(TrainerOptions options) {
  const auto data = smooth_data(5 * kGlobalBatch);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  return cat(params_hash(trainer.session(), trainer.graph()), " ",
             state_hash(trainer.session(), trainer.graph()), " ", trainer.metric("loss"));
}

// NCCL promises no order. Its stand-in adds all ranks in one order, however they are spread over
// processes.
TEST(GpuProcessesTraining, EndsAsOneProcessWithAllGpusDoes) {
  for (const auto& [size, devices] : {std::pair(2, 1), {2, 2}, {3, 1}})
    for (const auto& [precision, bucket_mb] :
         {std::pair(Precision::kF32, 0.0), {Precision::kF32, 25.0}, {Precision::kF16, 25.0}}) {
      const test::StandInGpus gpus(size * devices);
      const test::UseGpus use(gpus);
      const auto with = [&, precision = precision, mb = bucket_mb](int own,
                                                                   const Group& processes) {
        TrainerOptions options = options_of(own, processes, mb);
        options.precision = precision;
        options.loss_scale.initial = 0x1p20;  // overflows, so that steps are skipped
        return trained(std::move(options));
      };
      const std::string alone = with(size * devices, nullptr);
      test::run_processes(size, [&, own = devices](const Group& processes) {
        EXPECT_EQ(with(own, processes), alone);
      });
    }
}

std::string refusal(int devices, const std::string& allreduce) {
  const test::StandInGpus gpus(2 * devices);
  const test::UseGpus use(gpus);
  std::mutex mutex;
  std::vector<std::string> said;
  test::run_processes(2, [&](const Group& processes) {
    const std::string one = message_of<InvalidArgument>(
        [&] { trained(options_of(devices, processes, 25, allreduce)); });
    const std::lock_guard lock(mutex);
    said.push_back(one);
  });
  EXPECT_THAT(said, Each(said[0]));
  return said[0];
}

// The common result of all processes; one process has no group. By default all are on one host.
std::string trained_on(const test::StandInGpus& gpus, int size, int devices,
                       const std::string& allreduce, const ModelFunction& model = normalised_model,
                       int hosts = 1) {
  const test::UseGpus use(gpus);
  const auto train = [&](const Group& processes) {
    TrainerOptions options = options_of(devices, processes, 25, allreduce);
    options.model = model;
    return trained(std::move(options));
  };
  if (size == 1) return train(nullptr);
  std::mutex mutex;
  std::vector<std::string> all;
  test::run_on_hosts(size, size / hosts, [&](const Group& processes) {
    const std::string own = train(processes);
    const std::lock_guard lock(mutex);
    all.push_back(own);
  });
  EXPECT_THAT(all, Each(all[0]));
  return all[0];
}

std::string trained_by(int size, int devices, const std::string& allreduce,
                       const ModelFunction& model = normalised_model) {
  const test::StandInGpus gpus(size * devices);
  return trained_on(gpus, size, devices, allreduce, model);
}

// The sum follows the canonical tree: NCCL brings pieces to their owners, and sums to all.
TEST(GpuProcessesTraining, ByCollectiveEndsAsOneProcessWithAllGpusDoes) {
  for (const auto& [size, devices] : {std::pair(2, 1), {2, 2}, {3, 2}}) {
    const std::string alone = trained_by(1, size * devices, "collective");
    test::StandInGpus gpus(size * devices);
    EXPECT_EQ(trained_on(gpus, size, devices, "collective"), alone);
    EXPECT_GT(gpus.calls().exchanges, 0);
    EXPECT_GT(gpus.calls().rank_gathers, 0);
    EXPECT_EQ(gpus.calls().all_reduces, 0);
    EXPECT_EQ(gpus.nccl_faults().alive, 0);
  }
}

TEST(GpuProcessesTraining, OnSeveralHostsEndsAsOneProcessWithAllGpusDoes) {
  const std::string alone = trained_by(1, 4, "collective");
  const test::StandInGpus gpus(4);
  EXPECT_EQ(trained_on(gpus, 4, 1, "collective", normalised_model, 2), alone);
  EXPECT_GT(gpus.calls().exchanges, 0);
  EXPECT_EQ(gpus.calls().rank_gathers, 0) << "NCCL gathers among all ranks alone";
}

// Slots lie on GPUs. Other processes read their parts there for the hash.
TEST(GpuProcessesTraining, InPartsEndsAsOneProcessWithAllGpusDoes) {
  for (const auto& [size, devices] : {std::pair(2, 1), {2, 2}, {3, 1}}) {
    const test::StandInGpus gpus(size * devices);
    const test::UseGpus use(gpus);
    const auto with = [&](int own, const Group& processes) {
      TrainerOptions options = options_of(own, processes, 25, "collective");
      options.aggregation.zero_stage = processes != nullptr;
      options.clip_norm = 0.05;
      return trained(std::move(options));
    };
    const std::string alone = with(size * devices, nullptr);
    test::run_processes(size, [&, own = devices](const Group& processes) {
      EXPECT_EQ(with(own, processes), alone) << size << " x " << own;
    });
  }
}

TEST(GpuProcessesTraining, WithoutNcclGoesThroughHostsToTheSameEnd) {
  test::StandInGpus gpus(4);
  gpus.set_nccl({.why_not = "NCCL cannot be loaded"});
  EXPECT_EQ(trained_on(gpus, 2, 2, "collective", synchronised_model),
            trained_by(2, 2, "collective", synchronised_model));
  EXPECT_EQ(gpus.calls().exchanges + gpus.calls().rank_gathers, 0);
  EXPECT_EQ(gpus.nccl_faults().made, 0);
}

TEST(GpuProcessesTraining, NormalisesOverAllGpusAsOneProcessDoes) {
  const std::string alone = trained_by(1, 4, "collective", synchronised_model);
  EXPECT_EQ(trained_by(2, 2, "collective", synchronised_model), alone);
}

// With two processes a ring adds in the order of the tree.
TEST(GpuProcessesTraining, ByRingOfTwoEndsAsByCollective) {
  EXPECT_EQ(trained_by(2, 1, "ring"), trained_by(2, 1, "collective"));
}

TEST(GpuProcessesTraining, IsRefusedForStrategiesOfOneProcess) {
  EXPECT_THAT(refusal(2, "naive"), HasSubstr("gradients of one process"));
  EXPECT_THAT(refusal(2, "naive"), HasSubstr("use nccl"));
}

TEST(GpuProcessesTraining, IsRefusedForNcclOnCpus) {
  test::run_processes(2, [&](const Group& processes) {
    TrainerOptions options = options_of(1, processes, 25);
    options.devices = {DeviceSpec::local("CPU", 0)};
    EXPECT_THAT(message_of<InvalidArgument>([&] { trained(std::move(options)); }),
                AllOf(HasSubstr("NCCL needs GPUs"), HasSubstr("use collective")));
  });
}

}  // namespace gpu_processes_training_test
}  // namespace belfry
