#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace ring_test {

using testing::HasSubstr;

// Segment s of three towers starts at rank s + 1 and ends at rank s: 2 + 3 + 1 for the first.
TEST(Ring, AddsInTheOrderOfTheRing) {
  TestGradients g(3, {{3}});
  const GradientTable sums =
      make_strategy("ring")->reduce(g.table(), {.reduction = Reduction::kSum});
  const auto x = [&](int t, std::size_t i) { return g.value(t, 0).data<float>()[i]; };
  const Tensor got = evaluate(sums.at(0, 0).value);
  EXPECT_EQ(got.data<float>()[0], (x(1, 0) + x(2, 0)) + x(0, 0));
  EXPECT_EQ(got.data<float>()[1], (x(2, 1) + x(0, 1)) + x(1, 1));
  EXPECT_EQ(got.data<float>()[2], (x(0, 2) + x(1, 2)) + x(2, 2));
}

TEST(Ring, AddsThePredecessorsPieceToItsOwnOnItsOwnDevice) {
  TestGradients g(4, {{8}});
  make_strategy("ring")->reduce(g.table(), {.reduction = Reduction::kSum});
  const std::vector<Node*> sums = nodes_of(g.graph, kAddN);
  ASSERT_EQ(sums.size(), 4U * 3);
  for (const Node* sum : sums) {
    const int here = *sum->device().index;
    EXPECT_EQ(sum->input(0).device(), cpu((here + 3) % 4));
    EXPECT_EQ(sum->input(1).device(), cpu(here));
    EXPECT_EQ(sum->output().shape(), (Shape{2}));
  }
}

TEST(Ring, CutsNoMoreSegmentsThanThereAreElements) {
  TestGradients g(8, {{3}, {}, {0}});
  const std::size_t before = g.graph.size();
  const GradientTable sums =
      make_strategy("ring")->reduce(g.table(), {.reduction = Reduction::kSum});
  EXPECT_EQ(nodes_of(g.graph, kAddN).size(), 7U * (3 + 1));
  EXPECT_EQ(crossings(g.graph, before), 2 * 7 * (3 + 1));
  EXPECT_EQ(sums.at(5, 2).value, g.rows[5][2].value) << "nothing to add";
}

TEST(Ring, NeedsToKnowShapes) {
  Graph graph;
  std::vector<std::vector<Gradient>> rows;
  for (int t = 0; t < 2; ++t)
    rows.push_back({{placeholder(graph, cat("g", t), DType::kF32, {kUnknownSize, 3}), {}}});
  for (const char* name : {"ring", "shuffle", "halving_doubling", "collective#2", "naive:1:naive"})
    EXPECT_THAT(message_of([&] { make_strategy(name)->reduce(GradientTable(rows)); }),
                HasSubstr("[?,3], is not fully known"))
        << name;
}

}  // namespace ring_test
}  // namespace belfry
