#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/collective.h"
#include "belfry/allreduce/colocate.h"
#include "belfry/allreduce/gradient_packer.h"
#include "belfry/allreduce/hierarchical.h"
#include "belfry/allreduce/naive.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/plan.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/square.h"
#include "belfry/tests/allreduce/tables.h"

namespace belfry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<DeviceSpec> devices_of(const std::vector<Node*>& nodes) {
  std::vector<DeviceSpec> devices;
  for (const Node* node : nodes) devices.push_back(node->device());
  return devices;
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Strategies, LeaveTheGradientsOfOneTowerAlone) {
  for (const char* name : {"collective", "naive", "hierarchical", "colocate"}) {
    TestGradients gradients(1, {{3}, {4}});
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced = make_strategy(name)->reduce(gradients.table());
    EXPECT_EQ(gradients.graph.size(), before) << name;
    EXPECT_EQ(reduced.at(0, 1).value, gradients.rows[0][1].value) << name;
  }
}

TEST(Naive, RotatesDevicesInReverseOrderOfVariables) {
  TestGradients gradients(2, std::vector<Shape>(5, Shape{4}));
  const GradientTable reduced = allreduce_naive(gradients.table(), cpus(2), Reduction::kSum);
  std::vector<DeviceSpec> by_variable;
  for (int v = 0; v < 5; ++v) by_variable.push_back(reduced.at(0, v).value.device());
  EXPECT_THAT(by_variable, ElementsAre(cpu(0), cpu(1), cpu(0), cpu(1), cpu(0)));
  EXPECT_EQ(&reduced.at(1, 4).value.node(), nodes_of(gradients.graph, kAddN).front());
}

TEST(Naive, MakesOneSumPerVariableThatAllTowersShare) {
  for (const int towers : {2, 3, 4, 6, 8}) {
    TestGradients gradients(towers, std::vector<Shape>(5, Shape{4}));
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced = allreduce_naive(gradients.table(), {}, Reduction::kSum);
    EXPECT_EQ(nodes_of(gradients.graph, kAddN).size(), 5U);
    EXPECT_EQ(gradients.graph.size() - before, 5U);
    EXPECT_EQ(crossings(gradients.graph, before), (towers - 1) * 5);
    EXPECT_EQ(reduced.at(0, 3).value, reduced.at(towers - 1, 3).value);
  }
}

TEST(Naive, DividesASharedSumOnceWhereItIs) {
  TestGradients gradients(4, {{4}, {4}});
  const GradientTable reduced = allreduce_naive(gradients.table());
  EXPECT_EQ(reduced.at(0, 0).value, reduced.at(3, 0).value);
  EXPECT_EQ(reduced.at(0, 0).value.device(), cpu(1));
  EXPECT_EQ(reduced.at(0, 1).value.device(), cpu(0));
}

TEST(Hierarchical, RotatesItsTwoMainDevices) {
  TestGradients gradients(8, std::vector<Shape>(9, Shape{4}));
  allreduce_hierarchical(gradients.table(), cpus(8), Reduction::kSum);
  std::vector<std::pair<int, int>> mains;
  const std::vector<Node*> sums = nodes_of(gradients.graph, kAddN);
  ASSERT_EQ(sums.size(), 27U);
  for (std::size_t i = 0; i < sums.size(); i += 3) {
    mains.emplace_back(*sums[i]->device().index, *sums[i + 1]->device().index);
    EXPECT_EQ(sums[i + 2]->device(), sums[i + 1]->device()) << "the total is formed on g1";
  }
  using P = std::pair<int, int>;
  EXPECT_THAT(mains, ElementsAre(P{0, 4}, P{1, 5}, P{2, 6}, P{3, 7}, P{4, 0}, P{5, 1}, P{6, 2},
                                 P{7, 3}, P{0, 4}));
}

TEST(Hierarchical, MakesTwoGroupSumsAndOneTotalPerVariable) {
  for (const int towers : {2, 4, 6, 8}) {
    TestGradients gradients(towers, std::vector<Shape>(5, Shape{4}));
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced =
        allreduce_hierarchical(gradients.table(), cpus(towers), Reduction::kSum);
    std::size_t group_sums = 0, totals = 0;
    for (const Node* sum : nodes_of(gradients.graph, kAddN)) {
      const bool total = sum->name().find("group1_total_agg") != std::string_view::npos;
      (total ? totals : group_sums) += 1;
      EXPECT_EQ(sum->inputs().size(), total ? 2U : static_cast<std::size_t>(towers) / 2);
    }
    EXPECT_EQ(totals, 5U);
    EXPECT_EQ(group_sums, towers == 2 ? 0U : 10U);  // the sum of one tensor is that tensor
    EXPECT_EQ(nodes_of(gradients.graph, kIdentity).size(), 5U * (towers + 1));
    EXPECT_EQ(crossings(gradients.graph, before), (2 * towers - 2) * 5);
    for (int t = 0; t < towers; ++t) EXPECT_EQ(reduced.at(t, 2).value.device(), cpu(t));
  }
}

TEST(Hierarchical, GivesEachTowerTheTotalOfItsOwnGroupsMain) {
  TestGradients gradients(8, std::vector<Shape>(8, Shape{4}));
  const GradientTable reduced = allreduce_hierarchical(gradients.table(), cpus(8), Reduction::kSum);
  for (int v = 0; v < 8; ++v)
    for (int t = 0; t < 8; ++t) {
      const Node& last = reduced.at(t, v).value.node();
      EXPECT_NE(last.name().find(cat("device", t, "_total_agg")), std::string_view::npos);
      const int g0 = v, g1 = (v + 4) % 8;
      const int main = t / 4 == g0 / 4 ? g0 : g1;
      EXPECT_EQ(last.input(0).device(), cpu(main)) << v << " " << t;
    }
}

TEST(Hierarchical, DividesOncePerTowerOnItsDevice) {
  TestGradients gradients(8, {{4}});
  const GradientTable reduced = allreduce_hierarchical(gradients.table(), cpus(8));
  EXPECT_EQ(nodes_of(gradients.graph, kDiv).size(), 8U);
  for (int t = 0; t < 8; ++t) EXPECT_EQ(reduced.at(t, 0).value.device(), cpu(t));
}

TEST(Hierarchical, RefusesAnOddNumberOfTowersNamingTheFlag) {
  TestGradients gradients(3, {{4}});
  const std::string message =
      message_of([&] { make_strategy("hierarchical")->reduce(gradients.table()); });
  EXPECT_THAT(message, HasSubstr("--allreduce=hierarchical"));
  EXPECT_THAT(message, HasSubstr("K = 3"));
  EXPECT_FALSE(make_strategy("hierarchical")->canonical(3));
}

TEST(Hierarchical, RefusesANumberOfDevicesThatIsNotThatOfTowers) {
  TestGradients gradients(4, {{4}});
  EXPECT_THAT(message_of([&] { allreduce_hierarchical(gradients.table(), cpus(3)); }),
              HasSubstr("one device for each, not 3"));
}

TEST(Collective, IsOneNodePerVariableWithAnInputAndAnOutputPerTower) {
  for (const int towers : {2, 3, 4, 6, 8}) {
    TestGradients gradients(towers, std::vector<Shape>(5, Shape{4}));
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced = allreduce_collective(gradients.table());
    const std::vector<Node*> nodes = nodes_of(gradients.graph, kAllReduce);
    ASSERT_EQ(nodes.size(), 5U);
    EXPECT_EQ(gradients.graph.size() - before, 5U) << "means are divided on the way";
    for (int v = 0; v < 5; ++v) {
      EXPECT_EQ(nodes[v]->inputs().size(), static_cast<std::size_t>(towers));
      EXPECT_EQ(nodes[v]->outputs(), static_cast<std::size_t>(towers));
      EXPECT_TRUE(nodes[v]->name().starts_with("AllReduceGrads"));
      for (int t = 0; t < towers; ++t) {
        EXPECT_EQ(nodes[v]->input(t), gradients.rows[t][v].value);
        EXPECT_EQ(reduced.at(t, v).value, nodes[v]->output(t));
      }
    }
  }
}

TEST(Colocate, SumsBesideTowerZerosVariable) {
  Graph graph;
  std::vector<std::vector<Gradient>> rows(2);
  std::vector<Variable> variables;
  for (const int home : {1, 0, 1}) {
    DeviceScope on(graph, cpu(home));
    variables.push_back(variable(graph, cat("v", variables.size()), {4}));
  }
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, cpu(t));
    for (const Variable v : variables)
      rows[t].push_back({constant(graph, Tensor({4}, DType::kF32)), v});
  }
  const GradientTable sums = aggregate_colocate(GradientTable(rows), Reduction::kSum);
  EXPECT_THAT(devices_of(nodes_of(graph, kAddN)), ElementsAre(cpu(1), cpu(0), cpu(1)));
  EXPECT_EQ(sums.at(0, 1).value, sums.at(1, 1).value);
  const GradientTable means = aggregate_colocate(GradientTable(rows));
  EXPECT_EQ(means.at(0, 0).value.device(), cpu(1));
  EXPECT_EQ(means.at(1, 1).value.device(), cpu(0));
}

TEST(Packed, CombinesPartsInsteadOfVariables) {
  TestGradients gradients(4, std::vector<Shape>(6, Shape{1000}));
  packed(make_strategy("collective"), 4)->reduce(gradients.table());
  EXPECT_EQ(nodes_of(gradients.graph, kAllReduce).size(), 4U);
  TestGradients others(4, std::vector<Shape>(6, Shape{1000}));
  packed(make_strategy("hierarchical"), 4)->reduce(others.table());
  EXPECT_EQ(nodes_of(others.graph, kAddN).size(), 12U);
}

TEST(Packed, RefusesWithThePackersReason) {
  TestGradients gradients(2, {{100}});
  const std::string message =
      message_of([&] { packed(make_strategy("naive"), 4)->reduce(gradients.table()); });
  EXPECT_THAT(message, HasSubstr("--gradient_repacking=4"));
  EXPECT_THAT(message, HasSubstr("100 elements"));
}

class OnFirst final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    std::vector<std::vector<Output>> sums(grads.towers());
    DeviceScope on(grads.graph(), grads.device(0));
    for (int v = 0; v < grads.variables(); ++v) {
      const Output total = add_n(grads.values(v));
      for (auto& row : sums) row.push_back(total);
    }
    return sums;
  }
};

class Forgetful final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    return {{grads.at(0, 0).value}, {}};
  }
};

TEST(StrategyRegistry, MakesStrategiesOfUsersByName) {
  register_strategy("on_first", [] { return std::make_unique<OnFirst>(); });
  TestGradients gradients(3, {{4}});
  const auto strategy = make_strategy("on_first");
  EXPECT_FALSE(strategy->canonical(3)) << "unless it says so";
  const GradientTable mean = strategy->reduce(gradients.table());
  EXPECT_EQ(mean.at(2, 0).value.device(), cpu(0));
  EXPECT_THAT(
      message_of([] { register_strategy("on_first", [] { return std::make_unique<OnFirst>(); }); }),
      HasSubstr("'on_first' is already registered"));
}

TEST(StrategyRegistry, NamesTheNearestStrategy) {
  const std::string message = message_of([] { make_strategy("heirarchical"); });
  EXPECT_THAT(message, HasSubstr("'heirarchical'; did you mean 'hierarchical'?"));
  EXPECT_THAT(message, HasSubstr("collective, colocate, hierarchical, naive"));
}

TEST(Strategy, RefusesResultsOfAnotherLayout) {
  TestGradients gradients(2, {{4}});
  EXPECT_THAT(
      message_of([&] { Forgetful().reduce(gradients.table(), {.reduction = Reduction::kSum}); }),
      HasSubstr("combined gradients of tower 1 are 0 instead of 1; the first without one is that "
                "of variable 'v0'"));
}

struct Moved {
  std::size_t transfers = 0;
  std::int64_t bytes = 0;
};

// What a plan moves when every tower uses its own results. Gradients are computed: constants would
// be wherever they are needed.
Moved moved(const Strategy& strategy, int towers, const std::vector<Shape>& shapes) {
  TestGradients g(towers, shapes);
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(g.graph, cpu(t));
    for (Gradient& x : g.rows[static_cast<std::size_t>(t)]) x.value = square(x.value);
  }
  const GradientTable reduced = strategy.reduce(g.table());
  std::vector<Fetch> fetches;
  for (int t = 0; t < towers; ++t) {
    DeviceScope on(g.graph, cpu(t));
    for (int v = 0; v < reduced.variables(); ++v)
      fetches.emplace_back(square(reduced.at(t, v).value));
  }
  Session session(g.graph, {.device_count = {{"CPU", towers}}});
  Moved result;
  for (const TransferRecord& record : session.prepare(fetches).plan().transfers) {
    ++result.transfers;
    result.bytes += record.bytes;
  }
  return result;
}

// Every strategy gathers each tensor once and hands the sum back: 2 (K - 1) tensors per variable.
TEST(Strategies, MoveTheBytesOfTheirClosedForms) {
  const std::vector<Shape> shapes{{1000}, {30, 100}, {7}, {5000}};
  constexpr std::int64_t kBytes = 4 * (1000 + 3000 + 7 + 5000);
  for (const int towers : {2, 4, 6, 8})
    for (const char* name : {"naive", "hierarchical", "colocate", "collective"}) {
      const Moved m = moved(*make_strategy(name), towers, shapes);
      EXPECT_EQ(m.bytes, 2 * (towers - 1) * kBytes) << name << " " << towers;
      EXPECT_EQ(m.transfers, 2 * static_cast<std::size_t>(towers - 1) * shapes.size())
          << name << " " << towers;
    }
}

TEST(Strategies, MoveTheSameBytesInFourParts) {
  const std::vector<Shape> shapes{{1000}, {30, 100}, {7}, {5000}, {3}};
  constexpr std::int64_t kBytes = 4 * (1000 + 3000 + 7 + 5000 + 3);
  for (const char* name : {"naive", "hierarchical", "collective"}) {
    const Moved m = moved(*packed(make_strategy(name), 4), 4, shapes);
    EXPECT_EQ(m.bytes, 2 * 3 * kBytes) << name;
    EXPECT_EQ(m.transfers, 2u * 3 * 4) << name;
  }
}

}  // namespace
}  // namespace belfry
