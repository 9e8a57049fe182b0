// What `belfry replay` says of a step that was computed otherwise than it was noted.
#include "belfry/trainers/runs/replay_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace replay_check_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

StepHashes some_step() {
  const NamedHashes gradients{{"conv0/W", "a0"}, {"conv1/W", "a1"}, {"fc/W", "a2"}};
  StepHashes step;
  for (int t = 0; t < 4; ++t)
    step.contributions.push_back(
        {.tower = t, .rank = t / 2, .host = t / 2 == 0 ? "left" : "right", .gradients = gradients});
  step.gradients = gradients;
  step.variables = {{"conv0/W", "b0"}, {"fc/W", "b1"}};
  return step;
}

TEST(ReplayCheck, SaysNothingOfEqualSteps) {
  EXPECT_EQ(difference_of_step(some_step(), some_step(), 7, 6), "");
}

TEST(ReplayCheck, NamesTheProcessThatContributedOtherwise) {
  StepHashes noted = some_step();
  noted.contributions[2].gradients[0].second = noted.contributions[2].gradients[1].second = "ff";
  noted.gradients[0].second = noted.variables[0].second = "ff";
  EXPECT_THAT(difference_of_step(noted, some_step(), 7, 6),
              AllOf(HasSubstr("step 7: rank 1 on right contributed other gradients (tower 2): of "
                              "conv0/W, conv1/W; "),
                    HasSubstr("its forward pass was right, and its backward pass went wrong at "
                              "'conv1/W'"),
                    Not(HasSubstr("rank 0"))));
  for (auto& gradient : noted.contributions[2].gradients) gradient.second = "ff";
  EXPECT_THAT(difference_of_step(noted, some_step(), 7, 6),
              HasSubstr("all of its gradients differ, so its rows, its weights or its forward"));
}

// By name, in the order in which they ran.
TEST(ReplayCheck, NamesTheFirstOpThatComputedOtherwise) {
  StepHashes computed = some_step(), noted = some_step();
  for (StepHashes* const step : {&computed, &noted}) {
    step->contributions[3].ops = "000000aa000000bb000000cc";  // Add, MatMul, Tanh
    step->contributions[3].op_names = {"MatMul 'b'", "Tanh 'c'", "Add 'a'"};
  }
  noted.contributions[3].gradients[2].second = "ff";
  EXPECT_THAT(difference_of_step(noted, computed, 7, 6), Not(HasSubstr("first op")));
  noted.contributions[3].op_names.clear();  // as it is read
  noted.contributions[3].ops = "000000a0000000bb000000c0";
  EXPECT_THAT(difference_of_step(noted, computed, 7, 6),
              HasSubstr("the first op that computed otherwise is Tanh 'c'"));
  noted.contributions[3].ops = "00";  // of another plan
  EXPECT_THAT(difference_of_step(noted, computed, 7, 6), Not(HasSubstr("first op")));
}

TEST(ReplayCheck, SaysWhereSumsAndUpdatesWentWrong) {
  StepHashes noted = some_step();
  noted.variables[1].second = "ff";
  EXPECT_THAT(difference_of_step(noted, some_step(), 7, 6),
              AllOf(HasSubstr("step 7: fc/W of rank 0 differs after the step"),
                    HasSubstr("the update went wrong, or the memory")));
  noted.gradients[2].second = "ff";
  EXPECT_THAT(difference_of_step(noted, some_step(), 7, 6),
              AllOf(HasSubstr("the combined gradient of fc/W differs"),
                    HasSubstr("their sum went wrong, or a message of it")));
}

TEST(ReplayCheck, BlamesNoSumWhereContributionsAreUnknown) {
  StepHashes noted = some_step();
  noted.gradients[2].second = "ff";
  EXPECT_THAT(difference_of_step(noted, some_step(), 7, 6, 3),
              HasSubstr("differs, though the last of its 3 batches was right in all ranks: an "
                        "earlier one went wrong, or the sum"));
  noted.contributions.pop_back();  // of a start with fewer processes
  EXPECT_EQ(difference_of_step(noted, some_step(), 7, 6),
            "step 7: the combined gradient of fc/W differs");
}

TEST(ReplayCheck, SaysThatEarlierStepsMayHaveBeenWrong) {
  StepHashes noted = some_step();
  for (auto& tower : noted.contributions) tower.gradients[0].second = "ff";
  EXPECT_THAT(difference_of_step(noted, some_step(), 20, 10),
              HasSubstr("the steps between 10, which is equal, and this one are not noted"));
  EXPECT_THAT(difference_of_step(noted, some_step(), 20, 19),
              HasSubstr("all ranks had the same wrong weights or data"));
}

TEST(StepHashes, AreReadAsTheyAreWritten) {
  const JsonValue json = some_step().json(7);
  EXPECT_EQ(StepHashes::read(json).json(7).str(), json.str());
  EXPECT_THROW(StepHashes::read(JsonValue::parse("{\"step\":1}")), InvalidArgument);
}

}  // namespace replay_check_test
}  // namespace belfry
