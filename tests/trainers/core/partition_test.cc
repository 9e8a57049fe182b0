// Updates in parts, one per process, have the bits of whole updates.
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace partition_test {

using ::testing::HasSubstr;

constexpr int kGlobalBatch = 12, kSteps = 4;
constexpr std::int64_t kElements = 4 * 3000 + 3000 + 3000 + 1;

// The first weights have three blocks of the tree of squares, and the last bias has one element.
Output wide_model(Tower& tower, Output x, Output y) {
  const Output hidden = tanh(dense(tower, "fc0", x, {.units = 3000}));
  return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - y));
}

TrainerOptions options_of(int devices, const std::shared_ptr<Processes>& processes,
                          Optimizer optimizer) {
  const int towers = devices * (processes ? processes->size() : 1);
  TrainerOptions options{.model = wide_model,
                         .optimizer = std::move(optimizer),
                         .devices = cpus(devices),
                         .aggregation = {.bucket_mb = 25, .zero_stage = processes != nullptr},
                         .batch_size = kGlobalBatch / towers,
                         .epochs = 4,
                         .max_steps = kSteps,
                         .session = {.threads = 1, .processes = processes}};
  return options;
}

struct Trained {
  std::string hash, state, fingerprint;
  double loss;
  bool operator==(const Trained&) const = default;
};

Trained result_of(Trainer& trainer) {
  return {params_hash(trainer.session(), trainer.graph()),
          state_hash(trainer.session(), trainer.graph()), trainer.record().fingerprint().str(),
          trainer.metric("loss")};
}

Trained train(TrainerOptions options, std::int64_t samples = 5 * kGlobalBatch) {
  const auto data = smooth_data(samples);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  return result_of(trainer);
}

// Trains with updates in parts, and expects this result in each process.
void expect_in_all(int size, int devices, const Optimizer& optimizer, const Trained& expected,
                   const std::function<void(TrainerOptions&)>& change,
                   std::int64_t samples = 5 * kGlobalBatch) {
  test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
    TrainerOptions options = options_of(devices, processes, optimizer);
    change(options);
    EXPECT_EQ(train(std::move(options), samples), expected)
        << size << " x " << devices << ", rank " << processes->rank();
  });
}

// Compares one process of six devices with 2 processes of 3 devices, and with 3 of 2.
void expect_bits_of_one(const Optimizer& optimizer,
                        const std::function<void(TrainerOptions&)>& change,
                        std::int64_t samples = 5 * kGlobalBatch) {
  TrainerOptions alone = options_of(6, nullptr, optimizer);
  change(alone);
  const Trained expected = train(std::move(alone), samples);
  expect_in_all(2, 3, optimizer, expected, change, samples);
  expect_in_all(
      3, 2, optimizer, expected,
      [&](TrainerOptions& options) {
        change(options);
        options.aggregation.bucket_mb = 0;
      },
      samples);
}

class Optimizers : public testing::TestWithParam<Optimizer> {};

TEST_P(Optimizers, HaveTheBitsOfWholeUpdates) {
  for (const double clip_norm : {0.0, 0.05})
    expect_bits_of_one(GetParam(), [&](TrainerOptions& options) { options.clip_norm = clip_norm; });
}

INSTANTIATE_TEST_SUITE_P(Partition, Optimizers,
                         testing::Values(sgd(0.05, {.weight_decay = 0.01}),
                                         momentum(0.05, {.nesterov = true}), rms_prop(0.01),
                                         adam(0.01), adamw(0.01), lamb(0.01),
                                         lars(0.1, {.trust_coefficient = 0.1, .weight_decay = 0.1}),
                                         lion(0.01, {.weight_decay = 0.1}), adagrad(0.01),
                                         amsgrad(0.01), sgd(0.05).with_averages({})),
                         [](const auto& one) {
                           return cat(one.param.name(), one.param.averages() ? "WithAverages" : "");
                         });

TEST(Partition, CutsElementsOffToTheBitsOfWholeUpdates) {
  for (const int batches : {1, 2})
    for (const double clip_norm : {0.0, 0.05})
      expect_bits_of_one(momentum(0.05), [&](TrainerOptions& options) {
        options.batches.gradient_accumulation_steps = batches;
        options.clip_norm = clip_norm;
        options.clip_value = 0.01;
      });
}

// The norms of the last step.
std::vector<double> norms_of(TrainerOptions options) {
  const auto data = smooth_data(5 * kGlobalBatch);
  options.log_gradient_norms = true;
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  std::vector<double> norms;
  for (const NamedValue& norm : trainer.record().gradient_norms()) norms.push_back(norm.value);
  return norms;
}

TEST(Partition, LogsTheNormsOfWholeGradients) {
  for (const int batches : {1, 2})
    for (const double clip_norm : {0.0, 0.05}) {
      const auto change = [&](TrainerOptions options) {
        options.batches.gradient_accumulation_steps = batches;
        options.clip_norm = clip_norm;
        return options;
      };
      const std::vector<double> alone = norms_of(change(options_of(4, nullptr, adam(0.01))));
      EXPECT_EQ(alone.size(), 5u);
      const Trained expected = train(change(options_of(4, nullptr, adam(0.01))));
      test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
        EXPECT_EQ(norms_of(change(options_of(2, processes, adam(0.01)))), alone);
        TrainerOptions options = change(options_of(2, processes, adam(0.01)));
        options.log_gradient_norms = true;
        EXPECT_EQ(train(std::move(options)), expected);
      });
    }
}

TEST(Partition, HasNoWholeGradientsToShow) {
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    TrainerOptions options = options_of(2, processes, adam(0.01));
    options.histograms = {.every = 1, .patterns = {"gradients"}};
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { train(std::move(options)); }),
        HasSubstr("histograms shows whole gradients, of which each process has only parts"));
  });
}

TEST(Partition, GivesReplicasThatShareNoStorageTheSameBits) {
  const Trained expected = train(options_of(4, nullptr, adam(0.01)));
  expect_in_all(2, 2, adam(0.01), expected,
                [](TrainerOptions& options) { options.session.share_replicas = false; });
}

TEST(Partition, AddsUpBatchesToTheBitsOfWholeSums) {
  for (const int batches : {2, 3})
    for (const double clip_norm : {0.0, 0.05})
      expect_bits_of_one(adamw(0.01), [&](TrainerOptions& options) {
        options.batches.gradient_accumulation_steps = batches;
        options.clip_norm = clip_norm;
      });
}

// The third step of an epoch has seven samples.
TEST(Partition, TakesUnevenBatchesAndSharesToTheBitsOfWholeUpdates) {
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad})
    for (const bool shares : {false, true})
      expect_bits_of_one(
          momentum(0.05),
          [&](TrainerOptions& options) {
            options.batches.uneven = uneven;
            options.clip_norm = 0.05;
            if (shares) options.batches.tower_weights = {1, 1.5, 2, 1, 1.5, 2};
          },
          2 * kGlobalBatch + 7);
}

std::int64_t optimizer_bytes(const Session& session) {
  std::int64_t bytes = 0;
  for (const MemoryReport::Device& device : session.memory_report().devices)
    bytes += device.bytes[MemoryKind::kOptimizer];
  return bytes;
}

// Slots are cut between blocks of 4,096 elements, so no process is further than that from its
// share.
TEST(Partition, LeavesEachProcessItsShareOfTheSlots) {
  for (const int size : {2, 3}) {
    std::mutex mutex;
    std::int64_t all = 0;
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      const auto data = smooth_data(5 * kGlobalBatch);
      Trainer trainer(find_trainer("replicated"), options_of(1, processes, adam(0.01)), *data);
      trainer.train();
      constexpr std::int64_t kEach = 2 * sizeof(double), kCounter = sizeof(std::int64_t);
      const std::int64_t bytes = optimizer_bytes(trainer.session()) - kCounter;
      EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(kElements * kEach / size),
                  4096.0 * kEach);
      const std::lock_guard lock(mutex);
      all += bytes;
    });
    EXPECT_EQ(all, kElements * 2 * static_cast<std::int64_t>(sizeof(double)));
  }
}

// The forward pass computes while values that others have updated arrive. Averages read the values
// of the same step, and steps of several batches read the variables in each batch.
TEST(Partition, BeginsStepsWithTheValuesOfTheStepBefore) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    const auto data = smooth_data(5 * kGlobalBatch);
    const auto gathered_first = [&](Optimizer optimizer, int batches) {
      TrainerOptions options = options_of(1, processes, std::move(optimizer));
      options.batches.gradient_accumulation_steps = batches;
      Trainer trainer(find_trainer("replicated"), std::move(options), *data);
      return trainer.built().plans().back()->gathered_first.size();
    };
    EXPECT_EQ(gathered_first(adam(0.01), 1), 4u);
    EXPECT_EQ(gathered_first(adam(0.01), 2), 0u);
    EXPECT_EQ(gathered_first(sgd(0.05).with_averages({}), 1), 0u);
  });
}

// Rank 0 alone reads the variables after each step.
struct ReadByRank0 final : Callback {
  void after_step(Trainer& trainer, const StepInfo&) override {
    if (trainer.graph().process().rank == 0)
      hashes.push_back(cat(params_hash(trainer.session(), trainer.graph()), " ",
                           state_hash(trainer.session(), trainer.graph())));
  }
  std::vector<std::string> hashes;
};

std::vector<std::string> hashes_of_steps(TrainerOptions options) {
  const auto found = std::make_shared<ReadByRank0>();
  options.callbacks = {found};
  train(std::move(options));
  return found->hashes;
}

TEST(Partition, LetsOneProcessReadWhatAllHaveUpdated) {
  const std::vector<std::string> expected = hashes_of_steps(options_of(6, nullptr, adam(0.01)));
  ASSERT_EQ(expected.size(), kSteps);
  for (const int size : {2, 3})
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      const auto found = hashes_of_steps(options_of(6 / size, processes, adam(0.01)));
      if (processes->rank() == 0) {
        EXPECT_EQ(found, expected);
      }
    });
}

// After each step each process, rank 0 first, gives its first weights a norm of 1.
struct Normalise final : Callback {
  void after_step(Trainer& trainer, const StepInfo&) override {
    const int rank = trainer.graph().process().rank;
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
    const Variable weights = trainer.graph().variables(kTrainableVariables)[0];
    Tensor value = trainer.session().read(weights);
    double squares = 0;
    for (const double x : value.data<double>()) squares += x * x;
    for (double& x : value.mutable_data<double>()) x /= std::sqrt(squares);
    trainer.session().write(weights, value);
  }
};

TEST(Partition, LetsAllProcessesWriteWhatTheyHaveRead) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    const auto trained = [&](int zero_stage) {
      TrainerOptions options = options_of(1, processes, adam(0.01));
      options.aggregation.zero_stage = zero_stage;
      options.callbacks = {std::make_shared<Normalise>()};
      return train(std::move(options));
    };
    EXPECT_EQ(trained(1), trained(0)) << "rank " << processes->rank();
  });
}

// Goes on from the checkpoint `path` to the end.
Trained go_on(TrainerOptions options, const std::string& path) {
  const auto data = smooth_data(5 * kGlobalBatch);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  restore_training(trainer, path, OtherRuns::kRefuse);
  trainer.train();
  return result_of(trainer);
}

TEST(Partition, LeavesCheckpointsThatAnyNumberOfProcessesGoesOnFrom) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/checkpoint";
  const Trained expected = train(options_of(4, nullptr, adamw(0.01)));
  test::run_processes(4, [&](const std::shared_ptr<Processes>& processes) {
    TrainerOptions options = options_of(1, processes, adamw(0.01));
    options.max_steps = 2;
    const auto data = smooth_data(5 * kGlobalBatch);
    Trainer trainer(find_trainer("replicated"), std::move(options), *data);
    trainer.train();
    if (processes->rank() == 0) save_training(trainer, path);
  });
  EXPECT_EQ(go_on(options_of(4, nullptr, adamw(0.01)), path), expected);
  for (const bool partitioned : {true, false})
    test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
      TrainerOptions options = options_of(2, processes, adamw(0.01));
      options.aggregation.zero_stage = partitioned;
      EXPECT_EQ(go_on(std::move(options), path), expected);
    });
}

std::string refusal(const std::function<void(TrainerOptions&)>& change,
                    const char* kind = "replicated") {
  TrainerOptions options = options_of(2, nullptr, adam(0.01));
  options.aggregation.zero_stage = 1;
  change(options);
  const auto data = smooth_data(5 * kGlobalBatch);
  return message_of<InvalidArgument>(
      [&] { Trainer(find_trainer(kind), std::move(options), *data); });
}

TEST(Partition, SaysWhatItCannotBeCombinedWith) {
  EXPECT_THAT(refusal([](auto& o) { o.aggregation.allreduce = "ring"; }),
              HasSubstr("allreduce is ring; use collective"));
  EXPECT_THAT(refusal([](auto& o) { o.aggregation.small_tensors_kb = 4; }),
              HasSubstr("small_tensors_kb lays gradients out anew"));
  EXPECT_THAT(refusal([](auto& o) {
                o.optimizer = Optimizer(
                    {.name = "Own", .rate = 0.1, .update = [](const Optimizer::Update& u) -> Node& {
                       return u.variable.node();
                     }});
              }),
              HasSubstr("Own does not say that an element changes by its own gradient and slots"));
  EXPECT_THAT(refusal([](auto& o) { o.aggregation.allreduce = "colocate"; }, "parameter_server"),
              HasSubstr("zero_stage=1 is of the trainer replicated"));
}

TEST(Partition, OfOneProcessIsAWholeUpdate) {
  TrainerOptions options = options_of(2, nullptr, adam(0.01));
  options.aggregation.zero_stage = 1;
  EXPECT_EQ(train(std::move(options)), train(options_of(2, nullptr, adam(0.01))));
}

}  // namespace partition_test
}  // namespace belfry
