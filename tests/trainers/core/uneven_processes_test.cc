// Uneven batches in several processes give the bits of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace uneven_processes_test {

constexpr int kGlobalBatch = 24;

struct Wanted {
  ModelFunction model = smooth_model;
  Uneven uneven = Uneven::kWeight;
  int last = 7;  // samples of the last batch of an epoch; two full ones come before it
  bool shares = false;
  Precision precision = Precision::kF32;
  std::string strategy = "collective";
  int shards = 1;  // of each device
};

struct Trained {
  std::string hash, state;
  std::vector<double> metrics;
  bool operator==(const Trained&) const = default;
};

Trained train(int devices, const std::shared_ptr<Processes>& processes, const Wanted& wanted) {
  const int towers = devices * (processes ? processes->size() : 1);
  const auto data = smooth_data(2 * kGlobalBatch + wanted.last);
  TrainerOptions options{.model = wanted.model,
                         .optimizer = adam(0.01),
                         .devices = cpus(devices),
                         .aggregation = {.allreduce = wanted.strategy},
                         .batch_size = kGlobalBatch / towers,
                         .shards = wanted.shards * towers,
                         .batches = {.uneven = wanted.uneven},
                         .epochs = 2,
                         .precision = wanted.precision,
                         .loss_scale = {.initial = 0x1p20},  // f16 overflows at it
                         .session = {.threads = 1, .processes = processes}};
  for (int t = 0; wanted.shares && t < towers; ++t)
    options.batches.tower_weights.push_back(1 + t % 3 * 0.5);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  trainer.train();
  EXPECT_EQ(trainer.steps(), wanted.last > 0 ? 6 : 4);
  Trained result{params_hash(trainer.session(), trainer.graph()),
                 state_hash(trainer.session(), trainer.graph())};
  for (const NamedValue& metric : trainer.record().step_metrics())
    result.metrics.push_back(metric.value);
  return result;
}

class UnevenLayouts : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void expect_bits_of_one(const Wanted& wanted) {
    const auto [size, devices] = GetParam();
    const Trained alone = train(size * devices, nullptr, wanted);
    test::run_processes(size, [&](const std::shared_ptr<Processes>& processes) {
      EXPECT_EQ(train(devices, processes, wanted), alone)
          << name_of(wanted.uneven) << " " << wanted.last << (wanted.shares ? " shares" : "");
    });
  }
};

// With 2 samples most towers get none, and whole processes may get none.
TEST_P(UnevenLayouts, TrainToTheBitsOfOneProcess) {
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad})
    for (const int last : {0, 2, 13})
      for (const bool shares : {false, true})
        expect_bits_of_one({.uneven = uneven, .last = last, .shares = shares});
}

Output normalised_model(Tower& tower, Output x, Output y, bool synchronised) {
  const Output hidden = tanh(batch_norm(tower, "bn", dense(tower, "fc0", x, {.units = 5}),
                                        {.synchronised = synchronised}));
  return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - y));
}

TEST_P(UnevenLayouts, MoveAveragesToTheBitsOfOneProcess) {
  const ModelFunction model = [](Tower& tower, Output x, Output y) {
    return normalised_model(tower, x, y, false);
  };
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad})
    for (const int last : {2, 13}) expect_bits_of_one({model, uneven, last});
}

// A device with fewer rows than shards has another plan than the others, but sends its messages in
// the same order. Of the last 7 samples two towers get 3 and 4.
TEST_P(UnevenLayouts, MoveAveragesOfSharesInShards) {
  const ModelFunction model = [](Tower& tower, Output x, Output y) {
    return normalised_model(tower, cast(x, DType::kF32), cast(y, DType::kF32), false);
  };
  const auto [processes, devices] = GetParam();
  for (const int last : {0, 7, 14})
    for (const int shards : {2, 3, 4})
      if (shards * processes * devices <= kGlobalBatch)
        expect_bits_of_one({.model = model, .last = last, .shares = true, .shards = shards});
}

const ModelFunction kSynchronised = [](Tower& tower, Output x, Output y) {
  return normalised_model(tower, x, y, true);
};

TEST_P(UnevenLayouts, NormaliseTogetherToTheBitsOfOneProcess) {
  for (const bool shares : {false, true})
    expect_bits_of_one({.model = kSynchronised, .last = 17, .shares = shares});
}

// smooth_model in f32.
Output single_model(Tower& tower, Output x, Output y) {
  const Output hidden = tanh(dense(tower, "fc0", cast(x, DType::kF32), {.units = 5}));
  return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - cast(y, DType::kF32)));
}

// Losses are sums over shards, in f32.
TEST_P(UnevenLayouts, TakeShardsToTheBitsOfOneProcess) {
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad})
    for (const int last : {0, 2, 13})
      for (const int shards : {2, 3})
        expect_bits_of_one(
            {.model = single_model, .uneven = uneven, .last = last, .shards = shards});
}

// Training starts at a scale at which f16 overflows, so that steps are skipped.
TEST_P(UnevenLayouts, ScaleLossesToTheBitsOfOneProcess) {
  for (const int last : {2, 13})
    expect_bits_of_one({.model = single_model, .last = last, .precision = Precision::kF16});
}

INSTANTIATE_TEST_SUITE_P(Processes, UnevenLayouts,
                         testing::Values(std::tuple(2, 1), std::tuple(3, 2), std::tuple(4, 2)));

// Otherwise its plan could have messages in another order than the plans of other processes.
TEST(UnevenProcesses, CutATowerWithoutSamplesIntoShards) {
  const auto data = smooth_data(kGlobalBatch + 2);
  Trainer trainer(find_trainer("replicated"),
                  {.model = single_model,
                   .optimizer = adam(0.01),
                   .devices = cpus(2),
                   .batch_size = kGlobalBatch / 2,
                   .shards = 4,
                   .batches = {.uneven = Uneven::kPad}},
                  *data);
  const auto& batches = trainer.built().plans().back()->batches;
  ASSERT_EQ(batches.size(), 2);
  EXPECT_EQ(batches[0].samples, 2);
  EXPECT_EQ(batches[1].samples, kGlobalBatch / 2);
}

TEST(UnevenProcesses, TrainAlongARing) {
  const Wanted wanted{.strategy = "ring"};
  const Trained alone = train(2, nullptr, {});
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const Trained one = train(1, processes, wanted);
    EXPECT_NEAR(one.metrics[0], alone.metrics[0], 1e-12);
  });
}

TEST(UnevenProcesses, RefuseTowersWithoutSamplesInSynchronisedLayers) {
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { train(1, processes, {.model = kSynchronised, .last = 1}); }),
                testing::HasSubstr("uneven: the last batch of an epoch has 1 samples (1 + 0)"));
  });
}

}  // namespace uneven_processes_test
}  // namespace belfry
