#include "belfry/trainers/optimizers/clipping.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/optimizers/optimizer.h"

namespace belfry {
namespace clipping_test {

// Two variables per tower, with gradients of 3 and 4 times `scale`. Their norm is 5 times `scale`.
GradientTable table_of(Graph& graph, int towers, double scale = 1) {
  std::vector<std::vector<Gradient>> rows;
  for (int t = 0; t < towers; ++t) {
    const std::string prefix = t == 0 ? "" : cat("tower", t, "/");
    const ReplicaScope replica(graph, prefix, t);
    const DeviceScope on(graph, cat("/cpu:", t));
    std::vector<Gradient>& row = rows.emplace_back();
    for (int v = 0; v < 2; ++v)
      row.push_back(
          {constant(graph, Tensor({1}, std::vector<float>{static_cast<float>((3 + v) * scale)})),
           variable(graph, cat(prefix, "w", v), {1}, {.initializer = init::zeros()})});
  }
  return GradientTable(rows);
}

float factor_of(Graph& graph, const Unscaling& by) {
  Session session(graph, {.device_count = {{"CPU", 4}}});
  return session.run(by.factor).item<float>();
}

Unscaling clipped_table(const GradientTable& table, double max_norm, const Unscaling& by = {}) {
  return clipped(squares_of(table).sums, max_norm, by, table.device(0));
}

TEST(Squares, OfATableHaveThoseOfEachVariableOnce) {
  for (const int towers : {1, 2, 4}) {
    Graph graph;
    const GradientSquares squares = squares_of(table_of(graph, towers));
    EXPECT_THAT(squares.variables, testing::ElementsAre("w0", "w1"));
    Session session(graph, {.device_count = {{"CPU", 4}}});
    double first = 0, second = 0;
    for (const Output& sums : squares.sums) {
      const Tensor found = session.run(sums);
      first += found.data<double>()[0];
      second += found.data<double>()[1];
    }
    EXPECT_EQ(first, 9) << towers;
    EXPECT_EQ(second, 16) << towers;
  }
}

TEST(Clipped, BoundsTheNormOfOneTowersGradients) {
  for (const int towers : {1, 2, 4}) {
    Graph graph;
    EXPECT_EQ(factor_of(graph, clipped_table(table_of(graph, towers), 2.5)), 0.5f) << towers;
  }
  Graph graph;
  EXPECT_EQ(factor_of(graph, clipped_table(table_of(graph, 2), 5)), 1.0f);
}

// With a loss scale of 4, gradients of norm 5 arrive with norm 20.
TEST(Clipped, MeasuresGradientsWithoutTheLossScale) {
  Graph graph;
  const Unscaling by{constant(graph, Tensor(0.25f)), constant(graph, 1, DType::kI64)};
  const Unscaling clip = clipped_table(table_of(graph, 2, 4), 2.5, by);
  EXPECT_EQ(clip.applied, by.applied);
  EXPECT_EQ(factor_of(graph, clip), 0.125f);
  Graph other;
  const Unscaling skip{constant(other, Tensor(0.0f)), constant(other, 0, DType::kI64)};
  EXPECT_EQ(factor_of(other, clipped_table(table_of(other, 2, INFINITY), 2.5, skip)), 0.0f);
}

// Towers share the work: each squares one of the two.
TEST(Clipped, DividesTheTensorsAmongTowersWithCopies) {
  Graph graph;
  clipped_table(table_of(graph, 2), 1);
  std::vector<std::string> devices;
  for (std::size_t id = 0; id < graph.size(); ++id)
    if (std::string_view(graph.node(id).op().name) == "SumsOfSquares") {
      EXPECT_EQ(graph.node(id).inputs().size(), 1u);
      devices.push_back(graph.node(id).device().str());
    }
  EXPECT_THAT(devices, testing::UnorderedElementsAre("/device:CPU:0", "/device:CPU:1"));
}

// Decay comes after clipping: w = 0 - rate * (0.5 * 3), then w -= rate * (1.5 + decay * w).
TEST(Clipped, ComesBeforeWeightDecay) {
  Graph graph;
  const GradientTable table = table_of(graph, 1);
  Node& step = apply_gradients(sgd(1, {.weight_decay = 0.5}), table, {}, OptimizerSlots::kMake,
                               clipped_table(table, 2.5));
  Session session(graph);
  session.run({step});
  session.run({step});
  EXPECT_EQ(session.read(table.at(0, 0).variable).item<float>(), -1.5f - (1.5f - 0.75f));
}

}  // namespace clipping_test
}  // namespace belfry
