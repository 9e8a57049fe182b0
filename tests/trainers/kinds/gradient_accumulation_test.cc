// Several batches per update. An update uses the mean of their combined gradients.
#include <cmath>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/kinds/small_runs.h"
#include "belfry/trainers/core/accumulation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace gradient_accumulation_test {

using test::refusal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TrainerOptions smooth_options(int batch_size, int batches, int towers = 2) {
  return {.model = smooth_model,
          .optimizer = momentum(0.1),
          .devices = cpus(towers),
          .batch_size = batch_size,
          .batches = {.gradient_accumulation_steps = batches},
          .epochs = 3};
}

std::vector<Tensor> trained(const char* kind, TrainerOptions options, const Dataset& data) {
  Trainer trainer(find_trainer(kind), std::move(options), data);
  trainer.train();
  std::vector<Tensor> values;
  for (const Variable v : trainer.built().nodes().towers[0].trainables)
    values.push_back(trainer.session().read(v));
  return values;
}

void expect_near(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double difference) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].data<double>().size(); ++j)
      EXPECT_NEAR(a[i].data<double>()[j], b[i].data<double>()[j], difference) << i;
}

TEST(Accumulation, TrainsAsOneBatchOfAllDoes) {
  const auto data = smooth_data(48);
  for (const int batches : {2, 3, 4}) {
    const double near = batches == 3 ? 1e-7 : 1e-12;  // 1 / 3 is rounded to f32
    expect_near(trained("replicated", smooth_options(2, batches), *data),
                trained("replicated", smooth_options(2 * batches, 1), *data), near);
    expect_near(trained("simple", smooth_options(4, batches, 1), *data),
                trained("simple", smooth_options(4 * batches, 1, 1), *data), near);
  }
}

TEST(Accumulation, ClipsTheMean) {
  const auto data = smooth_data(48);
  TrainerOptions several = smooth_options(2, 3), one = smooth_options(6, 1);
  several.clip_norm = one.clip_norm = 0.05;
  expect_near(trained("replicated", several, *data), trained("replicated", one, *data), 1e-8);
}

struct Run {
  const char* kind = "replicated";
  const char* strategy = "collective";
  int towers = 4;
  AggregationOptions packing = {};
  bool fuse = true, share = true;
  int batches = 3;
  Optimizer optimizer = adamw(0.01);
};

std::string hashes(const Run& run) {
  return test::mlp_hashes({run.kind, run.strategy, run.towers},
                          {.optimizer = run.optimizer,
                           .aggregation = run.packing,
                           .batches = {.gradient_accumulation_steps = run.batches},
                           .epochs = 4,
                           .session = {.fuse = run.fuse, .share_replicas = run.share}});
}

TEST(Accumulation, GivesOneHashInEveryCanonicalMode) {
  BELFRY_NEED_DEVICES(4);
  const std::string reference = hashes({});
  EXPECT_NE(hashes({.batches = 1}), reference);
  for (const char* strategy : {"naive", "naive_cpu", "hierarchical", "shuffle"})
    EXPECT_EQ(hashes({.strategy = strategy}), reference) << strategy;
  EXPECT_EQ(hashes({.kind = "parameter_server", .strategy = "colocate"}), reference);
  EXPECT_EQ(hashes({.packing = {.gradient_repacking = 3}}), reference);
  EXPECT_EQ(hashes({.packing = {.bucket_mb = 0.01}}), reference);
  EXPECT_EQ(hashes({.fuse = false, .share = false}), reference);
}

TEST(Accumulation, GivesOneHashOnOneToEightDevices) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
  const std::string one = hashes({.kind = "simple", .strategy = "", .towers = 1});
  for (const int towers : {2, 4, 8}) EXPECT_EQ(hashes({.towers = towers}), one) << towers;
}

TEST(Accumulation, AndLambGiveOneHashOnOneToEightDevices) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
  const auto lamb_hashes = [](const char* kind, const char* strategy, int towers) {
    return hashes({.kind = kind, .strategy = strategy, .towers = towers, .optimizer = lamb(0.01)});
  };
  const std::string one = lamb_hashes("simple", "", 1);
  for (const int towers : {2, 4, 8})
    EXPECT_EQ(lamb_hashes("replicated", "collective", towers), one) << towers;
  EXPECT_EQ(lamb_hashes("parameter_server", "colocate", 4), one);
}

// Records the number, epoch and loss of each step.
struct Steps final : Callback {
  std::vector<std::string> seen;
  void after_step(Trainer& trainer, const StepInfo& info) override {
    seen.push_back(cat(info.step, " of epoch ", info.epoch));
    last_loss = trainer.metric("loss");
  }
  double last_loss = 0;
};

TEST(Accumulation, CountsUpdatesAndLeavesOutWhatDoesNotFillOne) {
  const auto data = smooth_data(21);  // 5 batches of 4; 2 updates of 2
  const auto steps = std::make_shared<Steps>();
  std::vector<std::int64_t> asked;
  TrainerOptions options = smooth_options(2, 2);
  options.optimizer = sgd(LearningRate([&](const StepInfo& info) {
    asked.push_back(info.step);
    return 0.1;
  }));
  options.epochs = 2;
  options.callbacks = {steps};
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  EXPECT_EQ(trainer.progress().total_steps(), 4);
  EXPECT_EQ(trainer.built().batches().dropped_per_epoch(), 5);
  asked.clear();
  trainer.train();
  EXPECT_THAT(steps->seen,
              ElementsAre("0 of epoch 0", "1 of epoch 0", "2 of epoch 1", "3 of epoch 1"));
  EXPECT_THAT(asked, ElementsAre(0, 1, 2, 3));
}

// Without learning, the loss of a step is the mean over all its batches.
TEST(Accumulation, RunsThePlansOfTheFirstTheOtherAndTheLastBatch) {
  const auto data = smooth_data(48);
  const auto runs_of = [&](int batches) {
    const Trainer trainer(find_trainer("replicated"), smooth_options(2, batches), *data);
    std::vector<std::int64_t> runs;
    for (const PlanOfStep& of : trainer.built().plans_of_step()) {
      runs.push_back(of.runs);
      EXPECT_EQ(of.plan, trainer.built().plans()[runs.size() - 1]);
    }
    EXPECT_EQ(runs.size(), trainer.built().plans().size());
    return runs;
  };
  EXPECT_THAT(runs_of(1), ElementsAre(1));
  EXPECT_THAT(runs_of(2), ElementsAre(1, 1));
  EXPECT_THAT(runs_of(3), ElementsAre(1, 1, 1));
  EXPECT_THAT(runs_of(5), ElementsAre(1, 3, 1));
}

TEST(Accumulation, ReportsTheMeanLossOfItsBatches) {
  const auto data = smooth_data(16);
  const auto loss = [&](int batch_size, int batches) {
    const auto steps = std::make_shared<Steps>();
    TrainerOptions options = smooth_options(batch_size, batches);
    options.optimizer = sgd(0);
    options.callbacks = {steps};
    options.max_steps = 1;
    trained("replicated", std::move(options), *data);
    return steps->last_loss;
  };
  EXPECT_NEAR(loss(2, 4), loss(8, 1), 1e-14);
  EXPECT_GT(std::abs(loss(2, 1) - loss(8, 1)), 1e-6);
}

TEST(Accumulation, GoesOnWhereARunStopped) {
  const auto data = smooth_data(32);
  TrainerOptions whole = smooth_options(2, 2);
  Trainer all(find_trainer("replicated"), whole, *data);
  all.train();
  TrainerOptions half = whole;
  half.max_steps = 5;
  Trainer first(find_trainer("replicated"), half, *data);
  first.train();
  EXPECT_EQ(first.progress().position().samples, 8);  // one step of the second epoch
  const std::string saved = path_of_test("");
  save_training(first, saved);
  Trainer second(find_trainer("replicated"), whole, *data);
  restore_training(second, saved);
  std::filesystem::remove_all(saved);
  second.train();
  EXPECT_EQ(state_hash(second.session(), second.graph()), state_hash(all.session(), all.graph()));
}

TEST(Accumulation, KeepsItsSumsOutOfWhatIsSavedAndHashed) {
  const auto data = smooth_data(16);
  const Trainer trainer(find_trainer("replicated"), smooth_options(2, 2), *data);
  EXPECT_EQ(trainer.graph().variables(kGradientSums).size(), 9U)
      << "4 variables on 2 towers, and whether a batch was bad";
  for (const Variable v : original_variables(trainer.graph()))
    EXPECT_THAT(std::string(v.logical_name()), testing::Not(HasSubstr("GradientSum")));
}

// The steps of the first, the middle and the last batch share arenas.
TEST(Accumulation, TakesTheMemoryOfOneBatchAndTheSums) {
  const auto data = smooth_data(4096);
  const auto planned = [&](int batch_size, int batches) {
    Trainer trainer(find_trainer("replicated"), smooth_options(batch_size, batches), *data);
    std::int64_t bytes = 0;
    for (const DeviceUse& use : trainer.session().device_use()) bytes += use.bytes;
    return bytes;
  };
  const std::int64_t one = planned(256, 1), all = planned(8 * 256, 1);
  for (const int batches : {2, 3, 8}) EXPECT_LT(planned(256, batches), one + one / 10) << batches;
  EXPECT_GT(all, 6 * one);
}

// Combined gradients are added as soon as they are made, so a step keeps only the sums.
TEST(Accumulation, KeepsNoGradientsBesideTheirSums) {
  const ModelSpec spec = find_model("mlp", 28);
  const auto planned = [&](const char* kind, int towers, int batches, double clip_norm) {
    TrainerOptions options{.model = spec.model,
                           .optimizer = sgd(0.1),
                           .devices = cpus(towers),
                           .batch_size = 128 / towers,
                           .batches = {.gradient_accumulation_steps = batches},
                           .clip_norm = clip_norm,
                           .session = {.dry_run = true}};
    if (kind == std::string_view("parameter_server")) options.aggregation.allreduce = "colocate";
    const auto data = synthetic_data(spec.fields, spec.classes, 1, 5);
    Trainer trainer(find_trainer(kind), std::move(options), *data);
    std::int64_t bytes = 0;
    for (const DeviceUse& use : trainer.session().device_use()) bytes += use.bytes;
    std::int64_t weights = 0;
    for (const Variable v : trainer.built().nodes().towers[0].trainables)
      weights += v.ref().type().bytes();
    return std::pair(bytes, weights);
  };
  for (const auto& [kind, towers] :
       {std::pair{"simple", 1}, {"replicated", 2}, {"replicated", 4}, {"parameter_server", 2}})
    for (const double clip_norm : {0.0, 1.0}) {
      const auto [one, weights] = planned(kind, towers, 1, clip_norm);
      for (const int batches : {2, 3})
        EXPECT_LE(planned(kind, towers, batches, clip_norm).first, one + weights + weights / 50)
            << kind << " on " << towers << ", " << batches << " batches, clip_norm " << clip_norm;
    }
}

TEST(Accumulation, IsRefusedWhereItCannotBe) {
  EXPECT_EQ(refusal("replicated", smooth_options(2, 2)), "(accepted)");
  EXPECT_THAT(refusal("async", smooth_options(2, 2)),
              AllOf(HasSubstr("gradient_accumulation_steps=2"), HasSubstr("async combines none")));
  EXPECT_THAT(refusal("replicated", smooth_options(2, 0)), HasSubstr("at least 1 batch"));
  EXPECT_THAT(refusal("replicated", smooth_options(2, 5)),
              HasSubstr("gradient_accumulation_steps=5: a step takes so many batches of 4 samples, "
                        "and the 16 of the data have only 4; use at most 4, smaller batches, or "
                        "more data"));
  TrainerOptions options = smooth_options(2, std::numeric_limits<int>::max());
  options.batch_size = 1 << 20;  // no machine has memory for that
  options.session.dry_run = true;
  EXPECT_THAT(refusal("replicated", options), HasSubstr("their order alone would need more than"));
  options = smooth_options(2, 2);
  options.precision = Precision::kF16;
  EXPECT_THAT(refusal("replicated", options), HasSubstr("use bf16"));
  for (const Uneven uneven : {Uneven::kPad, Uneven::kWeight}) {
    options = smooth_options(2, 2);
    options.batches.uneven = uneven;
    EXPECT_THAT(refusal("replicated", options), HasSubstr("use uneven=drop or error"));
  }
  options = smooth_options(2, 3);
  options.batches.uneven = Uneven::kError;
  EXPECT_THAT(refusal("replicated", options), HasSubstr("fill 1 steps of 12"));
}

}  // namespace gradient_accumulation_test
}  // namespace belfry
