// Clipping changes the trained model, but no way to train changes its bits.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace clip_norm_test {

using testing::AllOf;
using testing::HasSubstr;

struct Run {
  const char* kind = "replicated";
  const char* strategy = "collective";
  int towers = 4;
  AggregationOptions packing = {};
  bool fuse = true, share = true;
  double clip_norm = 0.1;
  Optimizer optimizer = momentum(0.1, {.nesterov = true, .weight_decay = 0.01});
};

// The hashes of weights and of all state after a few steps of the MLP.
std::string hashes(const Run& run) {
  const ModelSpec spec = find_model("mlp", 6);
  const auto data = synthetic_data(spec.fields, spec.classes, 32, 5);
  TrainerOptions options{.model = spec.model,
                         .optimizer = run.optimizer,
                         .devices = test::devices(run.towers),
                         .aggregation = run.packing,
                         .batch_size = 32 / run.towers,
                         .shards = run.kind == std::string_view("simple") || run.towers < 8 ? 8 : 0,
                         .epochs = 6,
                         .clip_norm = run.clip_norm,
                         .session = {.logical_gpus = test::logical_gpus(),
                                     .fuse = run.fuse,
                                     .share_replicas = run.share,
                                     .deterministic = true}};
  if (test::logical_gpus() > 1) options.shards = 0;
  options.aggregation.allreduce = run.strategy;
  Trainer trainer(find_trainer(run.kind), std::move(options), *data);
  trainer.train();
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
  return cat(params_hash(trainer.session(), trainer.graph()), " ",
             state_hash(trainer.session(), trainer.graph()));
}

TEST(ClipNorm, AndLambGiveOneHashOnOneToFourDevices) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
  const auto lamb_hashes = [](const char* kind, const char* strategy, int towers) {
    return hashes({.kind = kind, .strategy = strategy, .towers = towers, .optimizer = lamb(0.01)});
  };
  const std::string one = lamb_hashes("simple", "", 1);
  for (const int towers : {2, 4})
    EXPECT_EQ(lamb_hashes("replicated", "collective", towers), one) << towers;
}

TEST(ClipNorm, GivesOneHashInEveryCanonicalMode) {
  BELFRY_NEED_DEVICES(4);
  const std::string reference = hashes({});
  EXPECT_NE(hashes({.clip_norm = 0}), reference);
  EXPECT_NE(hashes({.clip_norm = 0.2}), reference);
  for (const char* strategy : {"naive", "naive_cpu", "hierarchical", "shuffle", "halving_doubling"})
    EXPECT_EQ(hashes({.strategy = strategy}), reference) << strategy;
  EXPECT_EQ(hashes({.kind = "parameter_server", .strategy = "colocate"}), reference);
  EXPECT_EQ(hashes({.packing = {.gradient_repacking = 3}}), reference);
  EXPECT_EQ(hashes({.packing = {.small_tensors_kb = 4}}), reference);
  EXPECT_EQ(hashes({.packing = {.bucket_mb = 0.01}}), reference);
  EXPECT_EQ(hashes({.fuse = false, .share = false}), reference);
  EXPECT_EQ(hashes({.share = false}), reference);
}

TEST(ClipNorm, GivesOneHashOnOneToEightDevices) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
  const std::string one = hashes({.kind = "simple", .strategy = "", .towers = 1});
  for (const int towers : {2, 4, 8}) {
    EXPECT_EQ(hashes({.towers = towers}), one) << towers;
    EXPECT_EQ(hashes({.kind = "parameter_server", .strategy = "colocate", .towers = towers}), one)
        << towers;
  }
}

TEST(ClipNorm, ThatNoGradientReachesChangesNoBit) {
  EXPECT_EQ(hashes({.clip_norm = 1e6}), hashes({.clip_norm = 0}));
}

TrainerOptions smooth_options(double clip_norm) {
  return {.model = smooth_model,
          .optimizer = sgd(0.5),
          .devices = cpus(2),
          .batch_size = 4,
          .max_steps = 1,
          .clip_norm = clip_norm};
}

// In plain gradient descent the weights move by rate * norm, and no further than the limit allows.
TEST(ClipNorm, BoundsAStepOfGradientDescent) {
  const auto data = smooth_data(16);
  const auto length = [&](double clip_norm) {
    Trainer trainer(find_trainer("replicated"), smooth_options(clip_norm), *data);
    std::vector<Tensor> before;
    for (const Variable v : trainer.built().nodes().towers[0].trainables)
      before.push_back(trainer.session().read(v));
    trainer.train();
    double squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Tensor after = trainer.session().read(trainer.built().nodes().towers[0].trainables[i]);
      for (std::size_t j = 0; j < after.data<double>().size(); ++j)
        squares += std::pow(after.data<double>()[j] - before[i].data<double>()[j], 2);
    }
    return std::sqrt(squares);
  };
  const double free = length(0);
  ASSERT_GT(free, 0.05);
  EXPECT_NEAR(length(0.1), 0.05, 1e-8);
  EXPECT_EQ(length(4 * free), free);
}

// A gradient that is NaN makes all weights NaN, so everybody sees that the run has diverged; unless
// the step is left out.
TEST(ClipNorm, HidesNoDivergence) {
  std::vector<double> x(64, 0.5), y(16, 1);
  x[5] = NAN;
  const TensorDataset data(
      {{"x", Tensor({16, 4}, x), DType::kF64, {4}}, {"y", Tensor({16, 1}, y), DType::kF64, {1}}},
      "one NaN");
  for (const OnNonfinite policy : {OnNonfinite::kStop, OnNonfinite::kContinue}) {
    const bool stops = policy == OnNonfinite::kStop;
    TrainerOptions options = smooth_options(0.1);
    options.epochs = 1;
    options.max_steps = 0;
    options.on_nonfinite = policy;
    Trainer trainer(find_trainer("replicated"), std::move(options), data);
    if (stops) {
      EXPECT_THROW(trainer.train(), Diverged);
    } else {
      trainer.train();
    }
    EXPECT_TRUE(find_divergence(trainer.built(), trainer.record()));
    for (const Variable v : trainer.built().nodes().towers[0].trainables)
      EXPECT_EQ(std::isnan(trainer.session().read(v).data<double>()[0]), !stops) << v.name();
  }
}

std::string refusal(const char* kind, TrainerOptions options) {
  const auto data = smooth_data(16);
  try {
    Trainer trainer(find_trainer(kind), std::move(options), *data);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(ClipNorm, IsRefusedWhereNothingIsCombined) {
  for (const char* async : {"ordered", "free"}) {
    TrainerOptions options = smooth_options(0.1);
    options.async = async;
    EXPECT_THAT(refusal("async", options),
                AllOf(HasSubstr("clip_norm=0.1"), HasSubstr("the trainer async combines none")));
  }
}

TEST(ClipNorm, IsRefusedIfItCannotBe) {
  for (const double most : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(refusal("replicated", smooth_options(most)), HasSubstr("is no finite number >= 0"));
  TrainerOptions options = smooth_options(0.1);
  options.optimizer =
      Optimizer({.name = "Own", .rate = 0.5, .update = [](const Optimizer::Update& u) -> Node& {
                   return u.gradient.node();
                 }});
  EXPECT_THAT(refusal("replicated", options),
              AllOf(HasSubstr("takes_loss_scale"), HasSubstr("Own does not")));
}

}  // namespace clip_norm_test
}  // namespace belfry
