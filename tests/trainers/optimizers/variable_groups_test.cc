#include "belfry/trainers/optimizers/variable_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/trainers/optimizers/optimizer_support.h"
#include "belfry/trainers/util/schedules.h"

namespace belfry {
namespace variable_groups_test {

using optimizer_support::gradient;
using optimizer_support::sequence;
using optimizer_support::weight;
using testing::AllOf;
using testing::HasSubstr;

TEST(VariableGroup, FitsNamesAndScopesInWhichAStarStandsForAnything) {
  const auto fits = [](const char* pattern, const char* name) {
    return VariableGroup{.pattern = pattern}.fits(name, {2});
  };
  for (const auto& [pattern, name] : {std::pair("fc0/W", "fc0/W"),
                                      {"fc0", "fc0/W"},
                                      {"fc0", "fc0/in/W"},
                                      {"fc*", "fc12/b"},
                                      {"*/b", "block/0/fc/b"},
                                      {"*", "x"},
                                      {"a*c*e", "abcde"},
                                      {"*ab", "aab"},
                                      {"b*/attn", "b1/attn/W"}})
    EXPECT_TRUE(fits(pattern, name)) << pattern << " " << name;
  for (const auto& [pattern, name] : {std::pair("fc0/W", "fc0/Wide"),
                                      {"fc", "fc0/W"},
                                      {"*/b", "b"},
                                      {"fc0/", "fc0/W"},
                                      {"W", "fc0/W"},
                                      {"a*c", "abcd"},
                                      {"b*/attn", "b1/mlp/W"}})
    EXPECT_FALSE(fits(pattern, name)) << pattern << " " << name;
  const VariableGroup vectors{.pattern = "*", .most_rank = 1};
  EXPECT_TRUE(vectors.fits("b", {5}));
  EXPECT_FALSE(vectors.fits("W", {5, 5}));
}

TEST(VariableGroup, IsReadAsItIsWritten) {
  const std::string text =
      "head:rate=10;*:most_rank=1,weight_decay=0;fc*:rate=0.1,weight_decay=0.25;conv*:freeze";
  const std::vector<VariableGroup> groups = parse_groups(text);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0], (VariableGroup{.pattern = "head", .rate = 10}));
  EXPECT_EQ(groups[1], (VariableGroup{.pattern = "*", .weight_decay = 0, .most_rank = 1}));
  EXPECT_EQ(groups[2], (VariableGroup{.pattern = "fc*", .rate = 0.1, .weight_decay = 0.25}));
  EXPECT_EQ(groups[3], (VariableGroup{.pattern = "conv*", .freeze = true}));
  EXPECT_EQ(text_of_groups(groups), text);
  EXPECT_EQ(text_of_groups({}), "");
}

TEST(VariableGroup, IsRefusedWithTheWordThatIsWrong) {
  const auto refusal = [](const char* text) -> std::string {
    try {
      parse_groups(text);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  for (const auto& [text, why] :
       {std::pair("head", "'head' is no group; write PATTERN:SETTING,..."),
        {":freeze", "':freeze' is no group"},
        {"head:", "'head:' is no group"},
        {"head:lr=1", "'lr=1' is no setting of a group; they are rate=X, "},
        {"head:freeze=1", "'freeze=1' is no setting"},
        {"head:rate=x", "'rate=x' is not a number"},
        {"head:rate=-1", "its rate is a factor, a finite number >= 0"},
        {"head:weight_decay=-1", "its weight decay must be a finite number >= 0"},
        {"head:most_rank=-1,freeze", "'most_rank=-1' is not"},
        {"head:rate=2,rate=3", "sets rate twice"},
        {"head:rate=2,freeze", "freezes its variables, so it can give them no rate"},
        {"a:freeze;", "'' is no group"}})
    EXPECT_THAT(refusal(text), HasSubstr(why)) << text;
}

// The values of variables "a", "b" and "c", which begin at 1, after two steps with the gradient
// 0.5 each.
std::vector<double> two_steps(const Optimizer& optimizer) {
  Graph graph;
  std::vector<Gradient> row;
  for (const char* name : {"a", "b", "c"}) row.push_back(gradient(weight(graph, name), 0.5));
  Node& step = optimizer.apply(row);
  Session session(graph);
  std::vector<double> values;
  for (int i = 0; i < 2; ++i) session.run({step});
  for (const Gradient& g : row) values.push_back(session.read(g.variable).data<double>()[0]);
  return values;
}

TEST(VariableGroups, GiveRatesAndWeightDecaysOfWhichTheFirstCounts) {
  const Optimizer grouped = sgd(0.1, {.weight_decay = 0.2})
                                .with_groups(parse_groups("b:rate=0.5;b:rate=7,weight_decay=9;"
                                                          "c:weight_decay=0"));
  const auto after = [](double rate, double decay) {
    double w = 1;
    for (int i = 0; i < 2; ++i) w -= rate * (0.5 + decay * w);
    return w;
  };
  const std::vector<double> values = two_steps(grouped);
  EXPECT_NEAR(values[0], after(0.1, 0.2), 1e-15);
  EXPECT_NEAR(values[1], after(0.05, 0.2), 1e-15);
  EXPECT_NEAR(values[2], after(0.1, 0), 1e-15);
}

// A vector of two elements is spared by AdamW's own group, which the groups of a user override.
TEST(VariableGroups, StandBeforeThoseOfTheOptimizer) {
  const AdamWOptions decaying{.weight_decay = 0.5};
  const std::vector<double> spared = two_steps(adamw(0.1, decaying));
  EXPECT_EQ(spared, two_steps(adamw(0.1, {.weight_decay = 0})));
  const std::vector<double> values =
      two_steps(adamw(0.1, decaying).with_groups(parse_groups("a:weight_decay=0.5;b:rate=2")));
  // The steps of Adam are -0.1 each, as its gradient is constant; a decay shrinks w before.
  EXPECT_NEAR(values[0], (0.95 - 0.1) * 0.95 - 0.1, 1e-7);
  EXPECT_NEAR(values[1], 1 - 4 * 0.1, 1e-7) << "a rate alone leaves the decay as it is";
  EXPECT_EQ(values[2], spared[2]);
}

TEST(VariableGroups, AreRefusedByAnOptimizerWithoutWeightDecay) {
  const Optimizer plain({.name = "Plain", .rate = 0.1, .update = {}});
  EXPECT_EQ(plain.with_groups(parse_groups("a:weight_decay=0")).groups().size(), 1u);
  try {
    plain.with_groups(parse_groups("a:weight_decay=0.5"));
    FAIL() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the group a:weight_decay=0.5 has a weight decay"),
                                    HasSubstr("the optimizer Plain takes none")));
  }
}

TEST(VariableGroups, RefuseGradientsOfWhatTheyFreeze) {
  Graph graph;
  const Gradient g = gradient(weight(graph, "a"), 0.5);
  try {
    sgd(0.1).with_groups(parse_groups("a:freeze")).apply({&g, 1});
    FAIL() << "it was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("variable"), HasSubstr("which the group a:freeze"),
                                    HasSubstr("FreezingGetter")));
  }
}

TEST(VariableGroups, FreezeWhatAGetterMakes) {
  Graph graph;
  const std::vector<VariableGroup> groups = parse_groups("a:freeze;b:rate=2");
  FreezingGetter frozen(groups);
  const VariableScope scope(graph, frozen);
  EXPECT_FALSE(weight(graph, "a").trainable());
  EXPECT_TRUE(weight(graph, "b").trainable());
}

TEST(VariableGroups, MustFitSomethingAndLeaveSomethingToTrain) {
  Graph graph;
  const std::vector<Variable> all{weight(graph, "conv0/W"), weight(graph, "fc/W")};
  const auto refusal = [&](const char* text) { return refusal_of_groups(parse_groups(text), all); };
  EXPECT_EQ(refusal("conv*:rate=2;fc:freeze"), "");
  EXPECT_EQ(refusal("conv1:rate=2"),
            "conv1:rate=2 fits no variable of the model; near are conv0/W, fc/W");
  EXPECT_THAT(refusal("conv*:rate=2;conv0/W:rate=3"),
              HasSubstr("conv0/W:rate=3 has no effect: all that it fits is in groups before it"));
  EXPECT_EQ(refusal("fc:rate=1;*:freeze"), "") << "takes fc out of the group after it";
  std::vector<VariableGroup> groups = parse_groups("*:rate=2;fc:freeze");
  groups[1].may_be_empty = true;  // of the program
  EXPECT_EQ(refusal_of_groups(groups, all), "");
}

}  // namespace variable_groups_test
}  // namespace belfry
