#include "belfry/allreduce/small_tensors.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/ops/all_reduce.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace small_tensors_test {

using testing::ElementsAre;
using testing::IsEmpty;
using P = std::pair<int, int>;

std::vector<int> first(int count) {
  std::vector<int> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

GradientTable reduce(const GradientTable& table, const Packing& packing) {
  return make_strategy("collective")->reduce(table, {.packing = packing});
}

// The shapes of the tensors that are combined.
std::vector<Shape> combined(const std::vector<Shape>& shapes, std::int64_t max_bytes,
                            int max_group = kMostInSmallPack) {
  TestGradients g(2, shapes);
  reduce(g.table(), {.small_bytes = max_bytes, .small_group = max_group});
  std::vector<Shape> found;
  for (const Node* node : nodes_of(g.graph, kAllReduce))
    found.push_back(node->output_type(0).shape);
  return found;
}

// tf_cnn_benchmarks lets runs grow to two more than the limit: [0,11], [12,23], [24,29].
TEST(ExtractRuns, DividesThirtyIndicesInRunsOfTen) {
  EXPECT_THAT(extract_runs(first(30), 10), ElementsAre(P{0, 9}, P{10, 19}, P{20, 29}));
}

TEST(ExtractRuns, LeavesSinglesOut) {
  EXPECT_THAT(extract_runs({}, 10), IsEmpty());
  EXPECT_THAT(extract_runs({0, 2, 3, 5, 7, 8, 9, 12}, 10), ElementsAre(P{2, 3}, P{7, 9}));
  EXPECT_THAT(extract_runs(first(11), 10), ElementsAre(P{0, 9}));
  EXPECT_THAT(extract_runs(first(12), 10), ElementsAre(P{0, 9}, P{10, 11}));
}

TEST(ExtractRuns, RefusesWhatIsNoList) {
  EXPECT_THROW(extract_runs({1, 2}, 1), InvalidArgument);
  EXPECT_THROW(extract_runs({2, 1}, 10), InvalidArgument);
  EXPECT_THROW(extract_runs({1, 1}, 10), InvalidArgument);
}

TEST(SmallTensors, ArePackedInRunsBeforeAllOthers) {
  // Tensors of up to 16 bytes, or 4 elements, are small.
  EXPECT_THAT(combined({{5}, {2}, {2, 2}, {9}, {1}, {8}, {}, {3}}, 16),
              ElementsAre(Shape{2 + 4}, Shape{1 + 3}, Shape{5}, Shape{9}, Shape{1}, Shape{8}));
  EXPECT_THAT(combined({{5}, {5}}, 16), ElementsAre(Shape{5}, Shape{5}));
}

TEST(SmallTensors, ArePackedInGroupsOfTheGivenSize) {
  EXPECT_THAT(combined(std::vector<Shape>(21, Shape{2}), 1024),
              ElementsAre(Shape{20}, Shape{20}, Shape{2}));
  EXPECT_THAT(combined(std::vector<Shape>(5, Shape{2}), 1024, 2),
              ElementsAre(Shape{4}, Shape{4}, Shape{2}));
}

TEST(SmallTensors, OfOtherTypesAreNotPacked) {
  Graph graph;
  std::vector<std::vector<Gradient>> rows(2);
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, cpu(t));
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF32, DType::kF32})
      rows[static_cast<std::size_t>(t)].push_back({constant(graph, Tensor({2}, dtype)), {}});
  }
  reduce(GradientTable(rows), {.small_bytes = 1024});
  std::vector<Shape> found;
  for (const Node* node : nodes_of(graph, kAllReduce)) found.push_back(node->output_type(0).shape);
  EXPECT_THAT(found, ElementsAre(Shape{4}, Shape{2}, Shape{2}));
}

TEST(SmallTensors, ArePackedAndUnpackedOnEachTowersDevice) {
  TestGradients g(2, {{2}, {3}, {5000}});
  const GradientTable table = g.table();
  const std::size_t before = g.graph.size();
  const GradientTable reduced = reduce(table, {.small_bytes = 1024});
  EXPECT_EQ(crossings(g.graph, before), 0) << "but for the collective";
  for (int t = 0; t < 2; ++t)
    for (int v = 0; v < 3; ++v) {
      EXPECT_EQ(reduced.at(t, v).value.device(), cpu(t));
      EXPECT_EQ(reduced.at(t, v).value.shape(), table.at(t, v).value.shape());
      EXPECT_EQ(reduced.at(t, v).variable, table.at(t, v).variable);
    }
}

TEST(SmallTensors, NeedALimitAndAGroup) {
  const TestGradients g(2, {{2}, {2}});
  EXPECT_THROW(reduce(g.table(), {.small_bytes = -1}), InvalidArgument);
  EXPECT_THROW(reduce(g.table(), {.small_bytes = 4, .small_group = 1}), InvalidArgument);
}

}  // namespace small_tensors_test
}  // namespace belfry
