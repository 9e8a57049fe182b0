#include "belfry/trainers/util/learning_rate.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace learning_rate_test {

using testing::HasSubstr;

constexpr StepInfo kRun{.steps_per_epoch = 10, .total_steps = 40};

// A rate that halves after each `epochs` epochs.
LearningRate falls_after(int epochs) {
  return LearningRate(
      [epochs](const StepInfo& info) { return std::pow(0.5, info.epoch / epochs); });
}

TEST(LearningRate, NamesTheStepWhoseScheduleGoesWrong) {
  const LearningRate rate([](const StepInfo& info) { return info.step < 3 ? 0.1 : std::nan(""); });
  EXPECT_FALSE(rate.is_constant());
  EXPECT_EQ(rate.at({.step = 2}), 0.1);
  try {
    rate.at({.step = 3});
    ADD_FAILURE() << "nan was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 3 is nan"));
  }
}

TEST(LearningRate, TellsSchedulesNoTime) {
  const LearningRate rate([](const StepInfo& info) { return info.seconds; });
  EXPECT_EQ(rate.at({.step = 5, .seconds = 3}), 0);
}

TEST(LearningRate, SaysWhatItIs) {
  EXPECT_EQ(LearningRate(0.1).str(), "0.1");
  EXPECT_EQ(LearningRate(0.1).str(kRun), "0.1");
  EXPECT_EQ(falls_after(1).str(), "a function of the program's");
  EXPECT_EQ(falls_after(1).str(kRun), "function of 40 steps: 0=1, 10=0.5, 20=0.25, 30=0.125");
  const LearningRate said([](const StepInfo&) { return 0.5; }, "half");
  EXPECT_EQ(said.str(), "half");
  EXPECT_EQ(said.str(kRun), "half");
  EXPECT_FALSE(falls_after(1).is_described());
}

TEST(LearningRate, IsTheSameOnlyWithTheSameValues) {
  const std::string ones = falls_after(1).str(kRun);
  EXPECT_TRUE(same_rates(ones, falls_after(1).str(kRun)));
  EXPECT_FALSE(same_rates(ones, falls_after(2).str(kRun)));
  EXPECT_FALSE(same_rates(ones, "0.1"));
  EXPECT_FALSE(same_rates("0.1", "0.2"));
  EXPECT_TRUE(same_rates("0.1", "0.1"));
  EXPECT_FALSE(same_rates("function of x steps: 0=1", "function of 4 steps: 0=1"));
  EXPECT_FALSE(same_rates("function of 4 steps: zero", "function of 4 steps: 0=1"));
}

// A longer run has the same schedule.
TEST(LearningRate, IsComparedAsFarAsBothRunsGo) {
  const StepInfo longer{.steps_per_epoch = 10, .total_steps = 4000};
  const StepInfo shorter{.steps_per_epoch = 10, .total_steps = 11};
  for (const LearningRate& rate : {falls_after(1), falls_after(3)}) {
    EXPECT_TRUE(same_rates(rate.str(kRun), rate.str(longer)));
    EXPECT_TRUE(same_rates(rate.str(shorter), rate.str(kRun)));
  }
  EXPECT_FALSE(same_rates(falls_after(1).str(kRun), falls_after(3).str(longer)));
  EXPECT_TRUE(same_rates(falls_after(2).str(shorter), falls_after(3).str(longer)));
}

TEST(LearningRate, IsSampledAtEachOfTheFirstEpochsOfALongRun) {
  const StepInfo run{.steps_per_epoch = 5000, .total_steps = 500000};
  EXPECT_FALSE(same_rates(falls_after(30).str(run), falls_after(31).str(run)));
}

TEST(LearningRate, MayDependOnTheLengthOfTheRun) {
  const LearningRate falls([](const StepInfo& info) {
    return 1 - static_cast<double>(info.step) / static_cast<double>(info.total_steps);
  });
  EXPECT_TRUE(depends_on_length(falls, kRun, 80, 20));
  EXPECT_FALSE(depends_on_length(falls, kRun, 80, 1)) << "the first step has the same rate";
  EXPECT_FALSE(depends_on_length(falls, kRun, 40, 20));
  EXPECT_FALSE(depends_on_length(falls_after(1), kRun, 80, 20));
  EXPECT_FALSE(depends_on_length(0.1, kRun, 80, 20));
}

TEST(WarmUp, GrowsToTheRate) {
  const LearningRate rate = warm_up(0.8, 4);
  const double wanted[] = {0.2, 0.4, 0.6000000000000001, 0.8, 0.8};
  for (int step = 0; step < 5; ++step) EXPECT_EQ(rate.at({.step = step}), wanted[step]) << step;
  EXPECT_EQ(rate.str(), "0.8, warm-up of 4 steps");
  EXPECT_TRUE(warm_up(0.8, 0).is_constant());
  EXPECT_TRUE(warm_up(0.8, 1).is_constant());
  EXPECT_THROW(warm_up(0.8, -1), InvalidArgument);
}

TEST(WarmUp, IsSampledWithTheFunctionThatItScales) {
  const LearningRate rate = warm_up(falls_after(1), 2);
  EXPECT_EQ(rate.str({.steps_per_epoch = 10, .total_steps = 20}),
            "function of 20 steps: 0=0.5, 1=1, 10=0.5");
}

}  // namespace learning_rate_test
}  // namespace belfry
