#include "belfry/allreduce/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/plan_kernels/rank_launch.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace buckets_test {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Pair;

constexpr double kKib = 1.0 / 1024;  // in MiB

GradientTable in_buckets(const char* spec, const TestGradients& gradients, double megabytes) {
  return make_strategy(spec)->reduce(gradients.table(), {.packing = {.bucket_mb = megabytes}});
}

TEST(Buckets, AreCutFromTheLastVariableToTheFirst) {
  const TestGradients gradients(2, {{100}, {50}, {50}, {1000}, {25}, {25}});
  const GradientTable table = gradients.table();
  EXPECT_THAT(cut_buckets(table, 400), ElementsAre(Pair(4, 6), Pair(3, 4), Pair(1, 3), Pair(0, 1)));
  EXPECT_THAT(cut_buckets(table, 399),
              ElementsAre(Pair(4, 6), Pair(3, 4), Pair(2, 3), Pair(1, 2), Pair(0, 1)));
  EXPECT_THAT(cut_buckets(table, 1 << 20), ElementsAre(Pair(0, 6)));
  EXPECT_EQ(cut_buckets(table, 0).size(), 6u);
}

TEST(Buckets, ALargerTensorIsABucketOfItsOwn) {
  const TestGradients gradients(2, {{1}, {1000}, {1}, {1}});
  EXPECT_THAT(cut_buckets(gradients.table(), 100), ElementsAre(Pair(2, 4), Pair(1, 2), Pair(0, 1)));
}

TEST(Buckets, HaveOneDTypeAndKnownShapes) {
  Graph graph;
  std::vector<Gradient> row;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF32})
    row.push_back({placeholder(graph, "g", dtype, {4}), {}});
  row.push_back({placeholder(graph, "g", DType::kF32, {kUnknownSize}), {}});
  EXPECT_THAT(cut_buckets(GradientTable({row, row}), 1000),
              ElementsAre(Pair(3, 4), Pair(1, 3), Pair(0, 1)));
}

TEST(Bucketed, IsOneCollectiveNodePerBucket) {
  for (const int towers : {2, 3, 8}) {
    TestGradients gradients(towers, {{256}, {128}, {2, 64}, {300}});
    const GradientTable reduced = in_buckets("collective", gradients, kKib);
    const std::vector<Node*> nodes = nodes_of(gradients.graph, kAllReduce);
    ASSERT_EQ(nodes.size(), 3u);
    const std::size_t tensors[] = {1, 2, 1};
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(nodes[b]->inputs().size(), tensors[b] * static_cast<std::size_t>(towers));
      EXPECT_EQ(collective_size(*nodes[b]), towers);
      EXPECT_TRUE(nodes[b]->origin().eager);
    }
    EXPECT_EQ(&reduced.at(0, 3).value.node(), nodes[0]);
    for (int t = 0; t < towers; ++t) {
      EXPECT_EQ(nodes[1]->input(static_cast<std::size_t>(t)), gradients.rows[t][1].value);
      EXPECT_EQ(reduced.at(t, 2).value, nodes[1]->output(static_cast<std::size_t>(towers + t)));
    }
  }
}

TEST(Bucketed, IsOneNodePerRangeOfSizesThatHasSuch) {
  TestGradients gradients(2, {{8}, {9}, {100}, {101}, {102}, {10}});
  const GradientTable reduced = in_buckets("collective:256:naive:404:collective#2", gradients, 1);
  const std::vector<Node*> nodes = nodes_of(gradients.graph, kAllReduce);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0]->inputs().size(), 3u * 2);      // of 8, 9 and 10 elements
  EXPECT_EQ(nodes[1]->inputs().size(), 1u * 2 * 2);  // of 102, in two chunks
  EXPECT_EQ(reduced.at(1, 5).value, nodes[0]->output(5));
  EXPECT_EQ(nodes_of(gradients.graph, kAddN).size(), 2u);  // of 100 and 101
}

TEST(Bucketed, OneNodeHasTheChunksOfAllTensors) {
  TestGradients gradients(3, {{8}, {9}});
  in_buckets("collective#4", gradients, 1);
  const std::vector<Node*> nodes = nodes_of(gradients.graph, kAllReduce);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0]->inputs().size(), 2u * 4 * 3);
}

TEST(Bucketed, ANodeIsDescribedWithEachOfItsVariablesOnce) {
  TestGradients gradients(gpus(2), {{8}, {9}});
  in_buckets("nccl", gradients, 1);
  EXPECT_THAT(describe_collective(*nodes_of(gradients.graph, kNcclAllReduce).at(0)),
              EndsWith("which combines the gradients of 'v0', 'v1'"));
}

TEST(Bucketed, StrategiesWithoutOneNodeSayNothingElseInSpecs) {
  for (const char* spec : {"naive", "shuffle#2", "naive:1k:hierarchical"})
    EXPECT_EQ(make_strategy(spec)->in_one_node(), nullptr) << spec;
}

// Describes a node completely, but for its name.
std::vector<std::string> shape_of(const Graph& graph, std::size_t first) {
  std::vector<std::string> lines;
  for (std::size_t id = first; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    std::string line = cat(node.op().name, " on ", node.device(), " of");
    for (const Output& input : node.inputs())
      line += cat(" ", input.node().id() < static_cast<int>(first) ? input.name() : "",
                  input.type(), "@", input.device());
    lines.push_back(line);
  }
  std::ranges::sort(lines);
  return lines;
}

// This includes strategies that rotate devices with the number of the variable.
TEST(Bucketed, LeavesOtherStrategiesTheirOwnNodesAndDevices) {
  for (const char* name : {"naive", "hierarchical", "colocate"}) {
    const std::vector<Shape> shapes(7, Shape{64});
    TestGradients plain(4, shapes), cut(4, shapes);
    const std::size_t first = plain.graph.size();
    make_strategy(name)->reduce(plain.table());
    in_buckets(name, cut, 0.5 * kKib);
    EXPECT_EQ(shape_of(plain.graph, first), shape_of(cut.graph, first)) << name;
    for (std::size_t id = first; id < cut.graph.size(); ++id)
      EXPECT_TRUE(cut.graph.node(id).origin().eager) << name;
  }
}

TEST(Bucketed, RefusesSizesThatAreNone) {
  const TestGradients gradients(2, {{4}});
  for (const double size : {-1.0, HUGE_VAL, std::nan("")})
    EXPECT_THAT(message_of([&] { in_buckets("collective", gradients, size); }),
                HasSubstr("are not possible; give a size above 0, or 0 for no buckets"))
        << size;
}

TEST(GradientTableColumns, KeepTheirNumbersAndDevices) {
  const TestGradients gradients(2, std::vector<Shape>(5, Shape{4}));
  const int which[] = {3, 1};
  const GradientTable some = gradients.table().columns(which);
  EXPECT_EQ(some.variables(), 2);
  EXPECT_EQ(some.number(0), 3);
  EXPECT_EQ(some.number(1), 1);
  EXPECT_EQ(some.numbers(), 5);
  EXPECT_EQ(some.at(1, 0).value, gradients.rows[1][3].value);
  EXPECT_EQ(some.device(1), cpu(1));
  const int second[] = {1};
  EXPECT_EQ(some.columns(second).number(0), 1);
  EXPECT_THROW(some.columns({}), InvalidArgument);
}

}  // namespace buckets_test
}  // namespace belfry
