// Gradients that are cut off one by one change the trained model, but no way to train changes its
// bits.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/test_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace clip_value_test {

using testing::AllOf;
using testing::HasSubstr;

struct Trained {
  const char* kind = "replicated";
  const char* strategy = "collective";
  int towers = 4;
  double clip_value = 0.01, clip_norm = 0;
  int accumulation = 1;
  Precision precision = Precision::kF32;
  bool fuse = true, share = true;
  Optimizer optimizer = momentum(0.1, {.nesterov = true, .weight_decay = 0.01});
};

// The hashes of weights and of all state after a few steps of the MLP.
std::string hashes(const Trained& run) {
  const ModelSpec spec = find_model("mlp", 6);
  const auto data = synthetic_data(spec.fields, spec.classes, 32, 5);
  TrainerOptions options{.model = spec.model,
                         .optimizer = run.optimizer,
                         .devices = cpus(run.towers),
                         .batch_size = 16 / run.towers,
                         .shards = 8,
                         .batches = {.gradient_accumulation_steps = run.accumulation},
                         .epochs = 3,
                         .precision = run.precision,
                         .clip_norm = run.clip_norm,
                         .clip_value = run.clip_value,
                         .session = {.fuse = run.fuse, .share_replicas = run.share}};
  options.aggregation.allreduce = run.strategy;
  Trainer trainer(find_trainer(run.kind), std::move(options), *data);
  trainer.train();
  EXPECT_TRUE(differing_replicas(trainer.session(), trainer.graph()).empty());
  return cat(params_hash(trainer.session(), trainer.graph()), " ",
             state_hash(trainer.session(), trainer.graph()));
}

TEST(ClipValue, GivesOneHashForEveryNumberOfDevicesAndWayToCombine) {
  const std::string one = hashes({.kind = "simple", .strategy = "", .towers = 1});
  EXPECT_NE(hashes({.clip_value = 0}), one);
  EXPECT_NE(hashes({.clip_value = 0.02}), one);
  for (const int towers : {2, 4, 8}) EXPECT_EQ(hashes({.towers = towers}), one) << towers;
  EXPECT_EQ(hashes({.kind = "parameter_server", .strategy = "colocate"}), one);
  EXPECT_EQ(hashes({.strategy = "hierarchical"}), one);
  EXPECT_EQ(hashes({.fuse = false, .share = false}), one);
}

TEST(ClipValue, GivesOneHashWithAllThatMultipliesGradients) {
  const Trained runs[] = {{.clip_norm = 0.1},
                          {.accumulation = 2},
                          {.clip_norm = 0.1, .accumulation = 2},
                          {.precision = Precision::kF16},
                          {.optimizer = lars(0.1, {.trust_coefficient = 0.1})}};
  for (Trained run : runs) {
    Trained free = run;
    run.towers = free.towers = 1;
    run.kind = free.kind = "simple";
    run.strategy = free.strategy = "";
    free.clip_value = 0;
    const std::string one = hashes(run);
    EXPECT_NE(hashes(free), one);
    run.kind = "replicated";
    run.strategy = "collective";
    for (const int towers : {2, 4}) {
      run.towers = towers;
      EXPECT_EQ(hashes(run), one) << towers;
    }
  }
}

TEST(ClipValue, ThatNoElementReachesChangesNoBit) {
  for (const int accumulation : {1, 2})
    EXPECT_EQ(hashes({.clip_value = 1e6, .accumulation = accumulation}),
              hashes({.clip_value = 0, .accumulation = accumulation}));
}

TrainerOptions smooth_options(double clip_value) {
  return {.model = smooth_model,
          .optimizer = sgd(0.5),
          .devices = cpus(2),
          .batch_size = 4,
          .max_steps = 1,
          .clip_value = clip_value};
}

// How far each weight moves in a step of gradient descent.
std::vector<double> moves(TrainerOptions options) {
  const auto data = smooth_data(16);
  Trainer trainer(find_trainer("replicated"), std::move(options), *data);
  const std::vector<Variable>& weights = trainer.built().nodes().towers[0].trainables;
  std::vector<Tensor> before;
  for (const Variable v : weights) before.push_back(trainer.session().read(v));
  trainer.train();
  std::vector<double> result;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Tensor after = trainer.session().read(weights[i]);
    for (std::size_t j = 0; j < after.data<double>().size(); ++j)
      result.push_back(after.data<double>()[j] - before[i].data<double>()[j]);
  }
  return result;
}

// Weights move by rate * gradient, and no further than the limit allows.
TEST(ClipValue, BoundsTheMoveOfEachWeight) {
  const std::vector<double> free = moves(smooth_options(0)), cut = moves(smooth_options(0.02));
  int bounded = 0;
  for (std::size_t i = 0; i < free.size(); ++i) {
    const double limit = 0.5 * 0.02;
    EXPECT_NEAR(cut[i], std::fmin(std::fmax(free[i], -limit), limit), 1e-12) << i;
    bounded += std::abs(free[i]) > limit;
  }
  EXPECT_GT(bounded, 0);
  EXPECT_LT(bounded, std::ssize(free));
}

// The norm is that of gradients that were cut off.
TEST(ClipValue, ComesBeforeTheNorm) {
  TrainerOptions both = smooth_options(0.02);
  both.clip_norm = 0.01;
  const std::vector<double> cut = moves(smooth_options(0.02)), scaled = moves(both);
  double squares = 0;
  for (const double move : cut) squares += move * move;
  const double factor = 0.01 / (std::sqrt(squares) / 0.5);
  ASSERT_LT(factor, 1);
  for (std::size_t i = 0; i < cut.size(); ++i) EXPECT_NEAR(scaled[i], factor * cut[i], 1e-8) << i;
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

TEST(ClipValue, IsRefusedWhereItCannotBe) {
  EXPECT_THAT(refusal("async", smooth_options(0.1)),
              AllOf(HasSubstr("clip_value=0.1"), HasSubstr("the trainer async combines none")));
  for (const double most : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(refusal("replicated", smooth_options(most)), HasSubstr("is no finite number >= 0"));
}

}  // namespace clip_value_test
}  // namespace belfry
