#include "belfry/trainers/util/schedules.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace schedules_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Ten epochs of four steps.
StepInfo at_step(std::int64_t step) {
  return {
      .step = step, .steps_per_epoch = 4, .epoch = static_cast<int>(step) / 4, .total_steps = 40};
}

std::vector<double> rates(const LearningRate& rate, std::vector<std::int64_t> steps) {
  std::vector<double> values;
  for (const std::int64_t step : steps) values.push_back(rate.at(at_step(step)));
  return values;
}

std::vector<double> rates(std::string_view schedule, std::vector<std::int64_t> steps,
                          std::int64_t warmup = 0) {
  return rates(scheduled_rate(1, parse_schedule(schedule), warmup), std::move(steps));
}

std::string schedule_refusal(std::string_view text) {
  try {
    parse_schedule(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Schedules, DropTheRateAfterEpochsOrSteps) {
  EXPECT_THAT(rates("step:2,3@0.5", {0, 7, 8, 11, 12, 39}), ElementsAre(1, 1, .5, .5, .25, .25));
  EXPECT_THAT(rates("step:5s,6s@0.5", {4, 5, 6}), ElementsAre(1, .5, .25));
  EXPECT_THAT(rates("step:0.5", {1, 2}), ElementsAre(1, .1));
}

TEST(Schedules, MoveToAGoalAndStayThere) {
  EXPECT_THAT(rates("linear:0.5@4", {0, 4, 8, 16, 39}), ElementsAre(1, .875, .75, .5, .5));
  EXPECT_THAT(rates("linear", {0, 10, 40}), ElementsAre(1, .75, 0));
  const double eighth = std::cos(std::acos(-1.0) / 4);
  EXPECT_THAT(rates("cosine:0@4", {0, 4, 16, 20}),
              ElementsAre(1, testing::DoubleEq((1 + eighth) / 2), 0, 0));
  EXPECT_THAT(rates("cosine:0.5@20s", {10, 20}), ElementsAre(.75, .5));
  EXPECT_THAT(rates("cosine:0.5", {20, 40}), ElementsAre(.75, .5));
}

// The C library has 0x1.a6423a3007776p-1 here, or something else: its cosine is not ours.
TEST(Schedules, HaveTheSameBitsOnEveryMachine) {
  EXPECT_THAT(rates("cosine", {11, 12, 21}),
              ElementsAre(0x1.a6423a3007777p-1, 0x1.96791823aad3p-1, 0x1.d7d4359b8ce37p-2));
}

// Schedules that move begin at the end of the warm-up. Epochs are counted from the start.
TEST(Schedules, FollowAWarmUp) {
  EXPECT_THAT(rates("linear:0@16s", {0, 3, 4, 10, 16}, 4), ElementsAre(.25, 1, 1, .5, 0));
  EXPECT_THAT(rates("step:1@0.5", {0, 1, 3, 4}, 8), ElementsAre(.125, .25, .5, .3125));
  EXPECT_THAT(rates("constant", {0, 1, 2}, 2), ElementsAre(.5, 1, 1));
}

TEST(Schedules, TakeRatesAtPointsAsTensorpackDoes) {
  EXPECT_THAT(rates("piecewise:2=0.5,4=0.25", {0, 7, 8, 15, 16, 39}),
              ElementsAre(1, 1, .5, .5, .25, .25));
  EXPECT_THAT(rates("piecewise:0s=3,6s=2", {0, 5, 6}), ElementsAre(3, 3, 2));
}

TEST(Schedules, InterpolateBetweenPointsAfterWholeEpochsAndNeverBeyond) {
  EXPECT_THAT(rates("interpolate:1=4,3=2", {0, 3, 4, 7, 8, 11, 12, 39}),
              ElementsAre(1, 1, 4, 4, 3, 3, 2, 2));
  EXPECT_THAT(rates("interpolate:0s=4,4s=2", {0, 1, 2, 4, 9}), ElementsAre(4, 3.5, 3, 2, 2));
}

TEST(Schedules, CallAFunctionAfterEachEpoch) {
  const LearningRate rate =
      set_each_epoch(1, [](int complete, double now) { return now / complete; });
  EXPECT_THAT(rates(rate, {0, 3, 4, 8, 12, 11}), ElementsAre(1, 1, 1, .5, .5 / 3, .5));
  EXPECT_FALSE(rate.is_described());
  EXPECT_THROW(set_each_epoch(1, {}), InvalidArgument);
}

TEST(Schedules, SayWhatTheyAreInTheirOwnGrammar) {
  for (const char* text :
       {"step:30,60,80@0.1", "step:500s@0.5", "linear:0.01@90", "cosine:0", "cosine:1e-05@5000s",
        "piecewise:30=0.01,60=0.001", "interpolate:0s=0.1,100s=1", "constant"})
    EXPECT_EQ(parse_schedule(text).str(), text);
  EXPECT_EQ(parse_schedule("cosine").str(), "cosine:0");
  EXPECT_EQ(parse_schedule("step:30").str(), "step:30@0.1");
  const LearningRate rate = scheduled_rate(0.1, parse_schedule("cosine:0@90"), 500);
  EXPECT_EQ(rate.str(), "cosine:0@90 from 0.1, warm-up of 500 steps");
  EXPECT_TRUE(scheduled_rate(0.1, parse_schedule("constant")).is_constant());
}

TEST(Schedules, RefuseWhatIsNone) {
  EXPECT_THAT(schedule_refusal("cosin:0"),
              AllOf(HasSubstr("'cosin'"), HasSubstr("did you mean 'cosine'? (there are constant"),
                    HasSubstr("step:TIMES@FACTOR")));
  EXPECT_THAT(schedule_refusal("step"), HasSubstr("'step' needs times, as in step:30,60,80@0.1"));
  EXPECT_THAT(schedule_refusal("piecewise:"), HasSubstr("as in piecewise:30=0.01"));
  EXPECT_THAT(schedule_refusal("step:30,6O@0.1"), HasSubstr("'6O' is no time"));
  EXPECT_THAT(schedule_refusal("step:30,,60"), HasSubstr("'' is no time"));
  EXPECT_THAT(schedule_refusal("step:30,20"), HasSubstr("time 20 stands behind 30"));
  EXPECT_THAT(schedule_refusal("step:30,200s"), HasSubstr("30 and 200s are one in steps"));
  EXPECT_THAT(schedule_refusal("step:30@-1"), HasSubstr("'-1' is no factor"));
  EXPECT_THAT(schedule_refusal("linear:fast@3"), HasSubstr("'fast' is no rate"));
  EXPECT_THAT(schedule_refusal("linear:@3"), HasSubstr("'' is no rate"));
  EXPECT_THAT(schedule_refusal("cosine:0@inf"), HasSubstr("'inf' is no time"));
  EXPECT_THAT(schedule_refusal("cosine:nan"), HasSubstr("'nan' is no rate"));
  EXPECT_THAT(schedule_refusal("piecewise:30"), HasSubstr("'30' is no TIME=RATE"));
  EXPECT_THAT(schedule_refusal("piecewise:3=1@4"), HasSubstr("'4' stands behind an @"));
  EXPECT_THAT(schedule_refusal("constant:1"), HasSubstr("'1' stands behind 'constant'"));
  EXPECT_THAT(schedule_refusal(""), HasSubstr("no schedule is called ''"));
}

TEST(Schedules, NeedTheEndOfTheRunWhereTheyLastUntilThen) {
  EXPECT_THROW(scheduled_rate(1, cosine_schedule()).at({.step = 3}), InvalidArgument);
  EXPECT_EQ(scheduled_rate(1, cosine_schedule(0, TrainingTime{4, true})).at({.step = 4}), 0);
}

}  // namespace schedules_test
}  // namespace belfry
