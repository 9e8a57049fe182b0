#include "belfry/trainers/data/batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/data/idx_files.h"

namespace belfry {
namespace batches_test {

using test::message_of;
using ::testing::ElementsAre;

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
  // 1000 are expected, with a standard deviation of 28.
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

TEST(BatchPlan, RefusesABatchLargerThanTheDataInTermsOfTheFlag) {
  const auto error = [](std::int64_t samples, std::int64_t towers, std::int64_t batch) {
    return message_of<InvalidArgument>([&] { BatchPlan(samples, towers, batch, 1); });
  };
  EXPECT_EQ(error(100, 4, 26),
            "batch_size=26 on each of 4 devices needs more samples in one step than the 100 of "
            "the data: batch_size can be at most 25");
  EXPECT_EQ(error(3, 4, 1),
            "batch_size=1 on each of 4 devices needs more samples in one step than the 3 of the "
            "data: use at most 3 devices, or more data");
  EXPECT_EQ(error(100, 4, 0), "batch_size=0: it must be at least 1");
  EXPECT_NE(error(100, 4, std::int64_t{1} << 62), "");
  EXPECT_EQ(error(100, 4, 25), "");
}

using Counts = std::vector<std::int64_t>;

BatchPlan uneven_plan(std::int64_t samples, std::int64_t towers, std::int64_t batch, Uneven uneven,
                      std::vector<double> weights = {}) {
  return BatchPlan(samples, towers, batch, 1, {uneven, std::move(weights)});
}

TEST(DivideSamples, GivesWhatIsLeftToTheLargestRemainders) {
  const auto divided = [](std::int64_t total, std::vector<double> weights) {
    return divide_samples(total, std::ssize(weights), weights);
  };
  EXPECT_EQ(divided(10, {1, 1, 1, 1}), (Counts{3, 3, 2, 2}));  // equal remainders: the first
  EXPECT_EQ(divided(3, {5, 5, 5, 5}), (Counts{1, 1, 1, 0}));
  EXPECT_EQ(divided(10, {3, 2}), (Counts{6, 4}));
  EXPECT_EQ(divided(10, {1, 2, 4}), (Counts{1, 3, 6}));       // 1.43 2.86 5.71
  EXPECT_EQ(divided(3, {0.1, 0.2, 0.3}), (Counts{1, 1, 1}));  // 0.5 1 1.5: exactly equal remainders
  EXPECT_EQ(divided(6, {0.1, 0.2, 0.3}), (Counts{1, 2, 3}));
  EXPECT_EQ(divided(7, {1e-9, 1}), (Counts{0, 7}));
  EXPECT_EQ(divided(std::int64_t{1} << 40, {999999.999999999, 1e-9}).front(),
            std::int64_t{1} << 40);
  EXPECT_EQ(divide_samples(5, 2), (Counts{3, 2}));
}

TEST(DivideSamples, RefusesWeightsThatAreNone) {
  const auto error = [](std::vector<double> weights) {
    return message_of<InvalidArgument>([&] { divide_samples(8, 2, weights); });
  };
  EXPECT_EQ(error({1}), "tower_weights has 1 where there are 2 devices; give one weight for each");
  for (const double wrong : {0., -1., 1e7, 1e-10, std::nan(""), HUGE_VAL})
    EXPECT_NE(error({1, wrong}), "") << wrong;
}

TEST(BatchPlan, DividesTheLastBatchLikeEveryOther) {
  const BatchPlan plan = uneven_plan(22, 4, 3, Uneven::kWeight);  // 12 and 10
  EXPECT_EQ(plan.steps_per_epoch(), 2);
  EXPECT_EQ(plan.dropped_per_epoch(), 0);
  ASSERT_EQ(plan.forms().size(), 2u);
  EXPECT_TRUE(plan.forms()[0].equal());
  EXPECT_EQ(plan.forms()[1].samples, (Counts{3, 3, 2, 2}));
  EXPECT_EQ(plan.forms()[1].rows, plan.forms()[1].samples);
  EXPECT_EQ(plan.form_of(0), 0u);
  EXPECT_EQ(plan.form_of(1), 1u);
  Order order(22);
  std::iota(order.begin(), order.end(), 0);
  EXPECT_THAT(plan.rows(order, 0, 3), ElementsAre(9, 10, 11));
  EXPECT_THAT(plan.rows(order, 1, 0), ElementsAre(12, 13, 14));
  EXPECT_THAT(plan.rows(order, 1, 3), ElementsAre(20, 21));
}

TEST(BatchPlan, LeavesTowersOutForWhichThereAreNoSamples) {
  const BatchPlan plan = uneven_plan(3, 4, 2, Uneven::kWeight);
  EXPECT_EQ(plan.steps_per_epoch(), 1);
  ASSERT_EQ(plan.forms().size(), 1u);  // there is no full batch
  EXPECT_EQ(plan.form_of(0), 0u);
  EXPECT_EQ(plan.forms()[0].rows, (Counts{1, 1, 1, 0}));
  Order order(3);
  EXPECT_TRUE(plan.rows(order, 0, 3).empty());
}

TEST(BatchPlan, FillsTheLastBatchUpWithSamplesThatDoNotCount) {
  const BatchPlan plan = uneven_plan(17, 4, 3, Uneven::kPad);  // 12 and 5
  EXPECT_EQ(plan.order_size(), 24);
  EXPECT_EQ(plan.forms()[1].samples, (Counts{3, 2, 0, 0}));
  EXPECT_EQ(plan.forms()[1].rows, (Counts{3, 2, 3, 3}));
  Order order(24);
  plan.shuffle(3, order);
  EXPECT_TRUE(std::equal(order.begin() + 17, order.end(), order.begin()));
  EXPECT_EQ(plan.rows(order, 1, 0).front(), order[12]);
  EXPECT_EQ(plan.rows(order, 1, 1).back(), order[16]);
  EXPECT_EQ(plan.rows(order, 1, 2).front(), order[18]);
  EXPECT_EQ(plan.rows(order, 1, 3).back(), order[23]);
}

TEST(BatchPlan, FillsABatchThatIsManyTimesAnEpoch) {
  const BatchPlan plan = uneven_plan(2, 3, 3, Uneven::kPad);
  Order order(static_cast<std::size_t>(plan.order_size()));
  plan.shuffle(0, order);
  EXPECT_EQ(plan.forms().front().samples, (Counts{2, 0, 0}));
  for (std::int64_t t = 1; t < 3; ++t)
    for (const std::int64_t row : plan.rows(order, 0, t)) EXPECT_LT(row, 2);
}

TEST(BatchPlan, DividesByWeights) {
  const BatchPlan plan = uneven_plan(22, 2, 6, Uneven::kWeight, {3, 1});
  EXPECT_EQ(plan.forms()[0].samples, (Counts{9, 3}));
  EXPECT_EQ(plan.forms()[1].samples, (Counts{8, 2}));  // 7.5 2.5
  EXPECT_EQ(uneven_plan(22, 2, 6, Uneven::kPad, {3, 1}).forms()[1].samples, (Counts{9, 1}));
  EXPECT_EQ(message_of<InvalidArgument>([] {
              uneven_plan(22, 2, 2, Uneven::kDrop, {100, 1});
            }),
            "tower_weights: tower 1 would get none of the 4 samples of a batch; use a larger "
            "weight or batch_size");
}

TEST(BatchPlan, TrainsWithEverySampleOnceWhateverTheNumbers) {
  for (const Uneven uneven : {Uneven::kWeight, Uneven::kPad})
    for (std::int64_t samples = 1; samples <= 40; ++samples)
      for (std::int64_t towers = 1; towers <= 5; ++towers)
        for (std::int64_t batch = 1; batch <= 5; ++batch) {
          const BatchPlan plan = uneven_plan(samples, towers, batch, uneven);
          Order order(static_cast<std::size_t>(plan.order_size())), seen;
          plan.shuffle(1, order);
          std::int64_t consumed = 0;
          for (std::int64_t step = 0; step < plan.steps_per_epoch(); ++step) {
            const BatchForm& form = plan.forms()[plan.form_of(step)];
            consumed += form.total();
            for (std::int64_t t = 0; t < towers; ++t) {
              const auto rows = plan.rows(order, step, t);
              EXPECT_EQ(std::ssize(rows), form.rows[static_cast<std::size_t>(t)]);
              if (form.samples[static_cast<std::size_t>(t)] > 0)
                seen.insert(seen.end(), rows.begin(), rows.end());
            }
          }
          EXPECT_EQ(consumed, samples);
          order.resize(static_cast<std::size_t>(samples));
          EXPECT_EQ(seen, order);
        }
}

TEST(BatchPlan, RefusesWhatDoesNotFillWholeBatchesIfAskedTo) {
  EXPECT_EQ(message_of<InvalidArgument>([] { uneven_plan(27, 2, 4, Uneven::kError); }),
            "uneven=error: the 27 samples of the data fill 3 batches of 8 (4 on each of 2 "
            "devices) and leave 3 over; another batch_size, or uneven=drop, weight or pad, "
            "would take them");
  EXPECT_EQ(uneven_plan(24, 2, 4, Uneven::kError).steps_per_epoch(), 3);
  for (const Uneven uneven : {Uneven::kDrop, Uneven::kError})
    EXPECT_THROW(uneven_plan(7, 2, 4, uneven), InvalidArgument);
  for (const Uneven uneven : {Uneven::kPad, Uneven::kWeight})
    EXPECT_EQ(message_of<InvalidArgument>([&] { uneven_plan(0, 2, 4, uneven); }),
              "there are 0 samples to train with; at least 1 is needed");
}

TEST(Uneven, IsKnownByItsNames) {
  for (const Uneven uneven : {Uneven::kDrop, Uneven::kPad, Uneven::kWeight, Uneven::kError})
    EXPECT_EQ(find_uneven(name_of(uneven)), uneven);
  EXPECT_THAT(message_of<InvalidArgument>([] { find_uneven("wait"); }),
              ::testing::HasSubstr("drop, pad, weight, error"));
}

// Towers without samples are fed, so that the plans of several processes are alike.
TEST(BatchPlan, FeedsTowersWithoutSamplesOneThatDoesNotCount) {
  const BatchPlan plan(26, 4, 6, 1, {.uneven = Uneven::kWeight, .feeds_every_tower = true});
  ASSERT_EQ(plan.forms().size(), 2u);
  const BatchForm& last = plan.forms()[1];
  EXPECT_THAT(last.samples, ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(last.rows, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(last.total(), 2);
  std::vector<std::int64_t> order(static_cast<std::size_t>(plan.order_size()));
  plan.shuffle(0, order);
  for (const std::int64_t tower : {2, 3})
    EXPECT_THAT(plan.rows(order, 1, tower), ElementsAre(order[0]));
}

// Describes each run as "first:samples x blocks". "one" follows runs that a single device takes.
std::string text_of(const EvaluationPlan& plan) {
  std::string text;
  for (const EvaluationPlan::Run& run : plan.runs())
    text += cat(text.empty() ? "" : ", ", run.first, ":", run.samples, "x", run.blocks,
                run.is_divided ? "" : " one");
  return text;
}

TEST(EvaluationPlan, TakesEverySampleOnceInBlocksOfPowersOfTwoPerShard) {
  EXPECT_EQ(text_of(EvaluationPlan(1000, 64, 4, 2)), "0:64x15, 960:32x1, 992:8x1");
  EXPECT_EQ(text_of(EvaluationPlan(103, 96, 4, 1)), "0:64x1, 64:32x1, 96:4x1, 100:1x3 one");
  EXPECT_EQ(text_of(EvaluationPlan(7, 3, 1, 1)), "0:2x3, 6:1x1");
  EXPECT_EQ(text_of(EvaluationPlan(9, 6, 3, 3)), "0:6x1, 6:3x1");
  EXPECT_EQ(text_of(EvaluationPlan(9, 4, 8, 2)), "0:4x2, 8:1x1 one") << "more shards than samples";
  EXPECT_EQ(text_of(EvaluationPlan(0, 3, 3, 3)), "");
  EXPECT_EQ(text_of(EvaluationPlan(2, std::int64_t{1} << 62, 2, 2)), "0:2x1");
  EXPECT_THAT(EvaluationPlan(7, 3, 1, 1).rows(2, 3), ElementsAre(2, 3, 4));
}

TEST(EvaluationPlan, DoesNotDependOnTheDevicesThatHaveTheShards) {
  for (const std::int64_t samples : {1, 31, 96, 777})
    for (const std::int64_t global : {8, 24, 64})
      for (const std::int64_t towers : {2, 4, 8})
        EXPECT_EQ(text_of(EvaluationPlan(samples, global, 8, towers)),
                  text_of(EvaluationPlan(samples, global, 8, 1)));
}

TEST(EvaluationPlan, RefusesWhatCannotBe) {
  EXPECT_THROW(EvaluationPlan(-1, 3, 1, 1), InvalidArgument);
  EXPECT_THROW(EvaluationPlan(6, 0, 1, 1), InvalidArgument);
  EXPECT_THROW(EvaluationPlan(6, 3, 2, 2), InvalidArgument);
  EXPECT_THROW(EvaluationPlan(6, 4, 3, 2), InvalidArgument);
  const EvaluationPlan plan(7, 3, 1, 1);
  EXPECT_THROW(plan.rows(6, 2), InvalidArgument);
  EXPECT_THROW(plan.rows(-1, 2), InvalidArgument);
}

}  // namespace batches_test
}  // namespace belfry
