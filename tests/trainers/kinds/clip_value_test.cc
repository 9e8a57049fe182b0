// Gradients that are cut off one by one change the trained model, but no way to train changes its
// bits.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/trainers/kinds/small_runs.h"

namespace belfry {
namespace clip_value_test {

using test::moves;
using test::refusal;
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

std::string hashes(const Trained& run) {
  return test::mlp_hashes({run.kind, run.strategy, run.towers},
                          {.optimizer = run.optimizer,
                           .batches = {.gradient_accumulation_steps = run.accumulation},
                           .epochs = 2,
                           .precision = run.precision,
                           .clip_norm = run.clip_norm,
                           .clip_value = run.clip_value,
                           .session = {.fuse = run.fuse, .share_replicas = run.share}});
}

TEST(ClipValue, GivesOneHashForEveryNumberOfDevicesAndWayToCombine) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
  const std::string one = hashes({.kind = "simple", .strategy = "", .towers = 1});
  EXPECT_NE(hashes({.clip_value = 0}), one);
  EXPECT_NE(hashes({.clip_value = 0.02}), one);
  for (const int towers : {2, 4, 8}) EXPECT_EQ(hashes({.towers = towers}), one) << towers;
  EXPECT_EQ(hashes({.kind = "parameter_server", .strategy = "colocate"}), one);
  EXPECT_EQ(hashes({.strategy = "hierarchical"}), one);
  EXPECT_EQ(hashes({.fuse = false, .share = false}), one);
}

TEST(ClipValue, GivesOneHashWithAllThatMultipliesGradients) {
  if (test::test_gpus() > 0) GTEST_SKIP() << "a GPU has one shard, so K changes bits there";
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

TEST(ClipValue, IsRefusedWhereItCannotBe) {
  EXPECT_THAT(refusal("async", smooth_options(0.1)),
              AllOf(HasSubstr("clip_value=0.1"), HasSubstr("the trainer async combines none")));
  for (const double most : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(refusal("replicated", smooth_options(most)), HasSubstr("is no finite number >= 0"));
}

}  // namespace clip_value_test
}  // namespace belfry
