#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/strategy.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/concat.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace shuffle_test {

using Sums = std::vector<std::pair<std::string, std::int64_t>>;

// The device and number of elements of every sum.
Sums sums_of(const Graph& graph) {
  Sums sums;
  for (const Node* node : nodes_of(graph, kAddN))
    sums.emplace_back(node->device().short_str(), node->output().shape().elements());
  return sums;
}

// The sums for towers on other devices than cpu:0, cpu:1, ...
Sums sums_with_towers_on(const char* strategy, const std::vector<DeviceSpec>& devices) {
  Graph graph;
  std::vector<std::vector<Gradient>> rows;
  for (const DeviceSpec& device : devices) {
    DeviceScope on(graph, device);
    rows.push_back({{constant(graph, Tensor({12}, DType::kF32)), {}}});
  }
  make_strategy(strategy)->reduce(GradientTable(rows));
  return sums_of(graph);
}

TEST(Shuffle, SumsOneFragmentOnEachDevice) {
  TestGradients g(4, {{2, 5}});
  const GradientTable sums = make_strategy("shuffle")->reduce(g.table());
  EXPECT_EQ(sums_of(g.graph), (Sums{{"CPU:0", 3}, {"CPU:1", 3}, {"CPU:2", 2}, {"CPU:3", 2}}));
  EXPECT_EQ(nodes_of(g.graph, kDiv).size(), 4U) << "fragments are divided, not their copies";
  EXPECT_EQ(nodes_of(g.graph, kConcat).size(), 4U);
  EXPECT_EQ(sums.at(3, 0).value.device(), cpu(3));
  EXPECT_EQ(sums.at(3, 0).value.shape(), (Shape{2, 5}));
}

TEST(Shuffle, AddsTowersInTheirOrder) {
  TestGradients g(3, {{6}});
  make_strategy("shuffle")->reduce(g.table());
  for (const Node* sum : nodes_of(g.graph, kAddN))
    for (int t = 0; t < 3; ++t) EXPECT_EQ(sum->input(static_cast<std::size_t>(t)).device(), cpu(t));
}

TEST(Shuffle, DealsChunksToDevicesInTurn) {
  TestGradients g(2, {{8}});
  make_strategy("shuffle#2")->reduce(g.table());
  EXPECT_EQ(sums_of(g.graph), (Sums{{"CPU:0", 2}, {"CPU:1", 2}, {"CPU:0", 2}, {"CPU:1", 2}}));
}

TEST(Shuffle, MakesNoEmptyFragments) {
  TestGradients g(8, {{3}, {}, {0}});
  const GradientTable sums = make_strategy("shuffle")->reduce(g.table());
  EXPECT_EQ(sums_of(g.graph), (Sums{{"CPU:0", 1}, {"CPU:1", 1}, {"CPU:2", 1}, {"CPU:0", 1}}));
  EXPECT_EQ(sums.at(7, 2).value, g.rows[7][2].value) << "nothing to add";
}

TEST(Pscpu, SumsOnTheCpusThatThereAre) {
  using S = Sums;
  EXPECT_EQ(sums_with_towers_on("pscpu", cpus(3)), (S{{"CPU:0", 4}, {"CPU:1", 4}, {"CPU:2", 4}}));
  EXPECT_EQ(sums_with_towers_on("pscpu", {"/gpu:0", "/gpu:1"}), (S{{"CPU:0", 12}}));
  EXPECT_EQ(sums_with_towers_on("pscpu", {"/cpu:2", "/cpu:3"}), (S{{"CPU:0", 6}, {"CPU:1", 6}}));
  EXPECT_EQ(sums_with_towers_on("pscpu", {"/cpu:0", "/gpu:1"}), (S{{"CPU:0", 12}}));
}

TEST(Psgpu, SumsOnTheTowersDevices) {
  EXPECT_EQ(sums_with_towers_on("psgpu", {"/gpu:1", "/gpu:0"}), (Sums{{"GPU:1", 6}, {"GPU:0", 6}}));
  EXPECT_EQ(sums_with_towers_on("shuffle", {"/gpu:1", "/gpu:0"}),
            (Sums{{"GPU:1", 6}, {"GPU:0", 6}}));
}

}  // namespace shuffle_test
}  // namespace belfry
