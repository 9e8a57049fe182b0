// Calls of a Tower by a tower function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace tower_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Only the main tower's summaries and the training towers' updates are kept.
TEST(Tower, CollectsSummariesInTheMainTowerAndUpdatesInTrainingTowers) {
  Graph graph;
  std::vector<std::size_t> inside;
  const auto build = [&](Tower& tower) {
    const Output x = iota(graph, {1});
    for (const char* key : {"summaries", "update_ops", "losses"})
      graph.add_to_collection(key, x.node());
    inside.push_back(tower.nodes("summaries").size());
  };
  replicate(graph, cpus(3), VariablePolicy::kReplicated, build);
  predict_tower(graph, {}, build);
  EXPECT_THAT(inside, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(graph.nodes("summaries").size(), 1U);
  EXPECT_EQ(graph.nodes("update_ops").size(), 3U);
  EXPECT_EQ(graph.nodes("losses").size(), 4U);
}

TEST(Tower, WithVariablesOfItsOwnNeedsANameAndNoReuseAround) {
  Graph graph;
  EXPECT_THAT(message_of([&] { Tower(graph, {.own_variables = true}); }),
              HasSubstr("needs a name"));
  VariableScope reuse(graph, "", VariableReuse::kCreateOrGet);
  EXPECT_THAT(
      message_of([&] { replicate(graph, cpus(2), VariablePolicy::kReplicated, two_variables); }),
      HasSubstr("tower 'tower1' (tower_test.cc:"));
}

TEST(Tower, RefusesLossesAndMetricsThatAreNoScalars) {
  Graph graph;
  Tower tower(graph);
  EXPECT_THAT(message_of([&] { tower.loss(iota(graph, {2})); }), HasSubstr("f32[2]"));
  EXPECT_THAT(message_of([&] { tower.metric("m", iota(graph, {2})); }), HasSubstr("metric 'm'"));
  const Output one = constant(graph, 1.0);
  tower.loss(one);
  EXPECT_THAT(message_of([&] { tower.loss(one); }), HasSubstr("the tower has one"));
  tower.output("y", one);
  EXPECT_THAT(message_of([&] { tower.output("y", one); }), HasSubstr("output 'y'"));
}

TEST(Tower, RefusesMetricsWithoutSumsOrEnds) {
  Graph graph;
  Tower tower(graph);
  const auto first = [](std::span<const double> sums) { return sums[0]; };
  const Output sums = iota(graph, {2});
  const auto refusal = [&](const MetricSums& metric) {
    return message_of([&] { tower.metric("m", metric); });
  };
  EXPECT_THAT(refusal({.sums = {}, .ends = {{"", first}}}), HasSubstr("metric 'm'"));
  EXPECT_THAT(refusal({.sums = sums, .ends = {}}), HasSubstr("does not say how its sums end"));
  EXPECT_THAT(refusal({.sums = sums, .ends = {{"x", nullptr}}}), HasSubstr("the end 'x'"));
  EXPECT_THAT(refusal({.sums = sums, .ends = {{"x", first}, {"x", first}}}), HasSubstr("'m_x'"));
  const Output rows = placeholder(graph, "rows", DType::kF32, {kUnknownSize});
  EXPECT_THAT(refusal({.sums = rows, .ends = {{"", first}}}), HasSubstr("use reduce_sum"));
  tower.metric("m_x", constant(graph, 1.0));
  EXPECT_THAT(refusal({.sums = sums, .ends = {{"x", first}}}), HasSubstr("one of this name"));
  tower.metric("m", {.sums = sums, .ends = {{"", first}, {"y", first}}});
  EXPECT_EQ(tower.metrics().back().value_names(), (std::vector<std::string>{"m", "m_y"}));
  EXPECT_EQ(tower.metrics().back().value.dtype(), DType::kF64);
}

TEST(Tower, FindsItsVariablesByScope) {
  Graph graph;
  std::vector<std::vector<std::string>> found;
  replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    for (const char* name : {"disc/W", "discount", "gen/W"})
      variable(graph, name, {2}, {.trainable = std::string_view(name) != "gen/W"});
    found.push_back(names_of(tower.variables("disc")));
    found.push_back(names_of(tower.trainables()));
  });
  EXPECT_THAT(found[0], ElementsAre("disc/W"));
  EXPECT_THAT(found[2], ElementsAre("tower1/disc/W"));
  EXPECT_THAT(found[3], ElementsAre("tower1/disc/W", "tower1/discount"));
}

}  // namespace tower_test
}  // namespace belfry
