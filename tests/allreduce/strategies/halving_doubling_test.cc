#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace halving_doubling_test {

// A sum: its tower, the towers of its two operands, and its elements.
using Sum = std::tuple<int, int, int, std::int64_t>;

std::vector<Sum> sums_of(const Graph& graph) {
  std::vector<Sum> sums;
  for (const Node* node : nodes_of(graph, kAddN))
    sums.emplace_back(*node->device().index, *node->input(0).device().index,
                      *node->input(1).device().index, node->output().shape().elements());
  return sums;
}

TEST(HalvingDoubling, HalvesAtDistancesOneTwoFour) {
  TestGradients g(8, {{16}});
  make_strategy("halving_doubling")->reduce(g.table(), {.reduction = Reduction::kSum});
  std::vector<Sum> want;
  for (const int distance : {1, 2, 4})
    for (int t = 0; t < 8; ++t) want.emplace_back(t, t & ~distance, t | distance, 8 / distance);
  EXPECT_EQ(sums_of(g.graph), want);
}

TEST(HalvingDoubling, GivesTheLowerTowerTheLongerHalf) {
  TestGradients g(4, {{7}});
  make_strategy("halving_doubling")->reduce(g.table(), {.reduction = Reduction::kSum});
  EXPECT_THAT(
      sums_of(g.graph),
      testing::ElementsAre(Sum{0, 0, 1, 4}, Sum{1, 0, 1, 3}, Sum{2, 2, 3, 4}, Sum{3, 2, 3, 3},
                           Sum{0, 0, 2, 2}, Sum{1, 1, 3, 2}, Sum{2, 0, 2, 2}, Sum{3, 1, 3, 1}));
}

TEST(HalvingDoubling, LeavesOutEmptyHalves) {
  TestGradients g(4, {{1}});
  const std::size_t before = g.graph.size();
  const GradientTable sums =
      make_strategy("halving_doubling")->reduce(g.table(), {.reduction = Reduction::kSum});
  EXPECT_THAT(sums_of(g.graph),
              testing::ElementsAre(Sum{0, 0, 1, 1}, Sum{2, 2, 3, 1}, Sum{0, 0, 2, 1}));
  EXPECT_EQ(crossings(g.graph, before), 3 + 3);
  for (int t = 0; t < 4; ++t) EXPECT_EQ(sums.at(t, 0).value.device(), cpu(t));
}

TEST(HalvingDoubling, FoldsTheTowersAboveAPowerOfTwoInFirst) {
  TestGradients g(6, {{4}});
  const GradientTable sums =
      make_strategy("halving_doubling")->reduce(g.table(), {.reduction = Reduction::kSum});
  const std::vector<Sum> all = sums_of(g.graph);
  ASSERT_EQ(all.size(), 2U + 8);
  EXPECT_EQ(all[0], (Sum{0, 0, 4, 4}));
  EXPECT_EQ(all[1], (Sum{1, 1, 5, 4}));
  const auto x = [&](int t) { return g.value(t, 0).data<float>()[3]; };
  EXPECT_EQ(evaluate(sums.at(5, 0).value).data<float>()[3],
            ((x(0) + x(4)) + (x(1) + x(5))) + (x(2) + x(3)));
}

TEST(HalvingDoubling, IsCanonicalAtPowersOfTwo) {
  for (const int towers : {1, 2, 4, 8, 16})
    EXPECT_TRUE(make_strategy("halving_doubling")->canonical(towers)) << towers;
  for (const int towers : {3, 5, 6, 7, 12})
    EXPECT_FALSE(make_strategy("rechd")->canonical(towers)) << towers;
}

}  // namespace halving_doubling_test
}  // namespace belfry
