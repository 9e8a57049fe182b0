#include "belfry/trainers/batches.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/error.h"
#include "belfry/tests/trainers/idx_files.h"

namespace belfry {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

using Order = std::vector<std::int64_t>;

Order order_of(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  Order order(static_cast<std::size_t>(samples));
  BatchPlan(samples, 1, 1, seed).shuffle(epoch, order);
  return order;
}

TEST(BatchPlan, ShufflesIntoAPermutation) {
  for (const std::int64_t samples : {1, 2, 3, 1000}) {
    Order order = order_of(samples, 1, 0);
    std::ranges::sort(order);
    for (std::int64_t i = 0; i < samples; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST(BatchPlan, ShufflesTheSameOnEveryMachine) {
  EXPECT_THAT(order_of(10, 1, 0), ElementsAre(3, 4, 6, 9, 0, 5, 1, 2, 8, 7));
}

TEST(BatchPlan, ShufflesDifferentlyByEpochAndBySeed) {
  const Order order = order_of(100, 1, 0);
  EXPECT_EQ(order, order_of(100, 1, 0));
  EXPECT_NE(order, order_of(100, 1, 1));
  EXPECT_NE(order, order_of(100, 2, 0));
  EXPECT_NE(order_of(100, 1, 2), order_of(100, 2, 1));
}

TEST(BatchPlan, PutsEverySampleEverywhereEquallyOften) {
  constexpr int kSamples = 5, kEpochs = 5000;
  int seen[kSamples][kSamples] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Order order = order_of(kSamples, 9, epoch);
    for (std::size_t i = 0; i < kSamples; ++i) ++seen[i][order[i]];
  }
  // 1000 expected, standard deviation 28.
  for (const auto& place : seen)
    for (const int count : place) EXPECT_NEAR(count, kEpochs / kSamples, 150);
}

TEST(BatchPlan, GivesTowersConsecutiveRowsOfAGlobalBatch) {
  const BatchPlan plan(20, 3, 2, 1);
  EXPECT_EQ(plan.global_batch(), 6);
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_EQ(plan.dropped_per_epoch(), 2);
  Order order(20);
  std::iota(order.begin(), order.end(), 100);
  EXPECT_THAT(plan.rows(order, 0, 0), ElementsAre(100, 101));
  EXPECT_THAT(plan.rows(order, 0, 2), ElementsAre(104, 105));
  EXPECT_THAT(plan.rows(order, 2, 1), ElementsAre(114, 115));
  EXPECT_THROW(plan.rows(order, 3, 0), InvalidArgument);
  EXPECT_THROW(plan.rows(order, 0, 3), InvalidArgument);
}

TEST(BatchPlan, GivesOneTowerWithTheWholeBatchTheSameSamples) {
  const BatchPlan four(100, 4, 8, 3), one(100, 1, 32, 3);
  Order order(100), same(100);
  four.shuffle(2, order);
  one.shuffle(2, same);
  EXPECT_EQ(order, same);
  Order joined;
  for (std::int64_t t = 0; t < 4; ++t)
    for (const std::int64_t row : four.rows(order, 1, t)) joined.push_back(row);
  EXPECT_TRUE(std::ranges::equal(joined, one.rows(same, 1, 0)));
}

TEST(BatchPlan, CountsPositionsInSamplesConsumed) {
  const BatchPlan plan(20, 3, 2, 1);  // 3 steps of 6 samples an epoch
  EXPECT_EQ(plan.position(0), (BatchPlan::Position{0, 0}));
  EXPECT_EQ(plan.position(12), (BatchPlan::Position{0, 2}));
  EXPECT_EQ(plan.position(18), (BatchPlan::Position{1, 0}));
  EXPECT_EQ(plan.position(42), (BatchPlan::Position{2, 1}));
  for (const std::int64_t samples : {0, 12, 18, 42})
    EXPECT_EQ(plan.samples_before(plan.position(samples)), samples);
  EXPECT_THROW(plan.position(13), InvalidArgument);
  EXPECT_THROW(plan.position(-6), InvalidArgument);
}

TEST(BatchPlan, RefusesABatchLargerThanTheDataInTermsOfTheFlag) {
  const auto error = [](std::int64_t samples, std::int64_t towers, std::int64_t batch) {
    return message_of<InvalidArgument>([&] { BatchPlan(samples, towers, batch, 1); });
  };
  EXPECT_EQ(error(100, 4, 26),
            "--batch_size=26 on each of 4 devices needs more samples in one step than the 100 of "
            "the data: --batch_size can be at most 25");
  EXPECT_EQ(error(3, 4, 1),
            "--batch_size=1 on each of 4 devices needs more samples in one step than the 3 of the "
            "data: use at most 3 devices, or more data");
  EXPECT_EQ(error(100, 4, 0), "--batch_size=0: it must be at least 1");
  EXPECT_NE(error(100, 4, std::int64_t{1} << 62), "");
  EXPECT_EQ(error(100, 4, 25), "");
}

TEST(EvaluationPlan, TakesEverySampleOnceInOrderWithAShortLastBatch) {
  const EvaluationPlan plan(7, 3);
  ASSERT_EQ(plan.batches(), 3);
  EXPECT_THAT(plan.rows(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(plan.rows(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(plan.rows(2), ElementsAre(6));
  EXPECT_THROW(plan.rows(3), InvalidArgument);
  EXPECT_EQ(EvaluationPlan(6, 3).batches(), 2);
  EXPECT_EQ(EvaluationPlan(0, 3).batches(), 0);
  EXPECT_EQ(EvaluationPlan(2, std::int64_t{1} << 62).batches(), 1);
  EXPECT_THROW(EvaluationPlan(6, 0), InvalidArgument);
}

}  // namespace
}  // namespace belfry
