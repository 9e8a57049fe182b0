#include "belfry/allreduce/strategies/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace ring_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> predecessors(int towers) {
  std::vector<int> found;
  for (int t = 0; t < towers; ++t) found.push_back(ring_predecessor(t, towers));
  return found;
}

std::vector<int> ranks(int towers, int chunk, int chunks) {
  std::vector<int> found;
  for (int t = 0; t < towers; ++t) found.push_back(ring_rank(t, towers, chunk, chunks));
  return found;
}

TEST(RingSchedule, TakesFromTheTowerBefore) {
  EXPECT_THAT(predecessors(3), ElementsAre(2, 0, 1));
  EXPECT_THAT(predecessors(6), ElementsAre(5, 0, 1, 2, 3, 4)) << "one ring of two times three";
}

TEST(RingSchedule, RotatesTheOrderFromChunkToChunk) {
  EXPECT_THAT(ranks(4, 0, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ranks(4, 1, 2), ElementsAre(2, 3, 0, 1)) << "by 4 / 2";
  EXPECT_THAT(ranks(3, 1, 2), ElementsAre(2, 0, 1)) << "by at least one";
  EXPECT_THAT(ranks(2, 3, 5), ElementsAre(1, 0)) << "more chunks than towers";
}

// At tick t rank r sums segment (r + K - 2 - t) mod K, and keeps (r + K - 1 - t) mod K.
TEST(RingSchedule, GoesThroughTheSegmentsBackwards) {
  EXPECT_EQ(ring_reduce_fragment(0, 3, 0), 1);
  EXPECT_EQ(ring_reduce_fragment(0, 3, 1), 0);
  EXPECT_EQ(ring_reduce_fragment(2, 3, 0), 0);
  EXPECT_EQ(ring_gather_fragment(0, 3, 0), 2);
  EXPECT_EQ(ring_gather_fragment(0, 3, 1), 1);
  EXPECT_EQ(ring_gather_fragment(1, 4, 2), 2);
}

// After the last tick of the reduction, the tower of rank r has the finished fragment r. It always
// takes the fragment that its predecessor took one tick earlier.
TEST(RingSchedule, PassesOnWhatArrivedATickAgo) {
  for (const int towers : {2, 3, 4, 6, 8})
    for (int rank = 0; rank < towers; ++rank) {
      EXPECT_EQ(ring_reduce_fragment(rank, towers, towers - 2), rank);
      const int before = (rank + towers - 1) % towers;
      for (int tick = 1; tick < towers - 1; ++tick) {
        EXPECT_EQ(ring_reduce_fragment(rank, towers, tick),
                  ring_reduce_fragment(before, towers, tick - 1));
        EXPECT_EQ(ring_gather_fragment(rank, towers, tick),
                  ring_gather_fragment(before, towers, tick - 1));
      }
      EXPECT_EQ(ring_gather_fragment(rank, towers, 0), before);
    }
}

// Segment s of three towers starts at rank s + 1 and ends at rank s: 2 + 3 + 1 for the first.
TEST(Ring, AddsInTheOrderOfTheRing) {
  TestGradients g(3, {{3}});
  const GradientTable sums = allreduce_ring(g.table(), Reduction::kSum);
  const auto x = [&](int t, std::size_t i) { return g.value(t, 0).data<float>()[i]; };
  const Tensor got = evaluate(sums.at(0, 0).value);
  EXPECT_EQ(got.data<float>()[0], (x(1, 0) + x(2, 0)) + x(0, 0));
  EXPECT_EQ(got.data<float>()[1], (x(2, 1) + x(0, 1)) + x(1, 1));
  EXPECT_EQ(got.data<float>()[2], (x(0, 2) + x(1, 2)) + x(2, 2));
}

TEST(Ring, AddsThePredecessorsPieceToItsOwnOnItsOwnDevice) {
  TestGradients g(4, {{8}});
  allreduce_ring(g.table(), Reduction::kSum);
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
  const GradientTable sums = allreduce_ring(g.table(), Reduction::kSum);
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
