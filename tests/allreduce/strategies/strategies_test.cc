#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/chunked.h"
#include "belfry/allreduce/pieces.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/tests/allreduce/tables.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace strategies_test {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<DeviceSpec> devices_of(const std::vector<Node*>& nodes) {
  std::vector<DeviceSpec> devices;
  for (const Node* node : nodes) devices.push_back(node->device());
  return devices;
}

TEST(Strategies, LeaveTheGradientsOfOneTowerAlone) {
  for (const std::string& name : strategy_names()) {
    TestGradients gradients(1, {{3}, {4}});
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced = make_strategy(name)->reduce(gradients.table());
    EXPECT_EQ(gradients.graph.size(), before) << name;
    EXPECT_EQ(reduced.at(0, 1).value, gradients.rows[0][1].value) << name;
  }
}

TEST(Naive, RotatesDevicesInReverseOrderOfVariables) {
  TestGradients gradients(2, std::vector<Shape>(5, Shape{4}));
  const GradientTable reduced =
      make_strategy("naive")->reduce(gradients.table(), {.reduction = Reduction::kSum});
  std::vector<DeviceSpec> by_variable;
  for (int v = 0; v < 5; ++v) by_variable.push_back(reduced.at(0, v).value.device());
  EXPECT_THAT(by_variable, ElementsAre(cpu(0), cpu(1), cpu(0), cpu(1), cpu(0)));
  EXPECT_EQ(&reduced.at(1, 4).value.node(), nodes_of(gradients.graph, kAddN).front());
}

TEST(Naive, MakesOneSumPerVariableThatAllTowersShare) {
  for (const int towers : {2, 3, 4, 6, 8}) {
    TestGradients gradients(towers, std::vector<Shape>(5, Shape{4}));
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced =
        make_strategy("naive")->reduce(gradients.table(), {.reduction = Reduction::kSum});
    EXPECT_EQ(nodes_of(gradients.graph, kAddN).size(), 5U);
    EXPECT_EQ(gradients.graph.size() - before, 5U);
    EXPECT_EQ(crossings(gradients.graph, before), (towers - 1) * 5);
    EXPECT_EQ(reduced.at(0, 3).value, reduced.at(towers - 1, 3).value);
  }
}

TEST(Naive, DividesASharedSumOnceWhereItIs) {
  TestGradients gradients(4, {{4}, {4}});
  const GradientTable reduced = make_strategy("naive")->reduce(gradients.table());
  EXPECT_EQ(reduced.at(0, 0).value, reduced.at(3, 0).value);
  EXPECT_EQ(reduced.at(0, 0).value.device(), cpu(1));
  EXPECT_EQ(reduced.at(0, 1).value.device(), cpu(0));
}

TEST(Hierarchical, RotatesItsTwoMainDevices) {
  TestGradients gradients(8, std::vector<Shape>(9, Shape{4}));
  make_strategy("hierarchical")->reduce(gradients.table(), {.reduction = Reduction::kSum});
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
        make_strategy("hierarchical")->reduce(gradients.table(), {.reduction = Reduction::kSum});
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
  const GradientTable reduced =
      make_strategy("hierarchical")->reduce(gradients.table(), {.reduction = Reduction::kSum});
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
  const GradientTable reduced = make_strategy("hierarchical")->reduce(gradients.table());
  EXPECT_EQ(nodes_of(gradients.graph, kDiv).size(), 8U);
  for (int t = 0; t < 8; ++t) EXPECT_EQ(reduced.at(t, 0).value.device(), cpu(t));
}

TEST(Hierarchical, RefusesAnOddNumberOfTowersByName) {
  TestGradients gradients(3, {{4}});
  const std::string message =
      message_of([&] { make_strategy("hierarchical")->reduce(gradients.table()); });
  EXPECT_THAT(message, HasSubstr("hierarchical needs an even number of towers, not K = 3"));
  EXPECT_FALSE(make_strategy("hierarchical")->canonical(3));
}

TEST(Collective, IsOneNodePerVariableWithAnInputAndAnOutputPerTower) {
  for (const int towers : {2, 3, 4, 6, 8}) {
    TestGradients gradients(towers, std::vector<Shape>(5, Shape{4}));
    const std::size_t before = gradients.graph.size();
    const GradientTable reduced = make_strategy("collective")->reduce(gradients.table());
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
  const GradientTable sums =
      make_strategy("colocate")->reduce(GradientTable(rows), {.reduction = Reduction::kSum});
  EXPECT_THAT(devices_of(nodes_of(graph, kAddN)), ElementsAre(cpu(1), cpu(0), cpu(1)));
  EXPECT_EQ(sums.at(0, 1).value, sums.at(1, 1).value);
  const GradientTable means = make_strategy("colocate")->reduce(GradientTable(rows));
  EXPECT_EQ(means.at(0, 0).value.device(), cpu(1));
  EXPECT_EQ(means.at(1, 1).value.device(), cpu(0));
}

// The variable asks for no device, and a scope outside does.
TEST(Colocate, SumsAndDividesInOnePlaceWithoutADevice) {
  Graph graph;
  const Variable v = variable(graph, "v", {4}, {.initializer = init::zeros()});
  std::vector<std::vector<Gradient>> rows(2);
  for (int t = 0; t < 2; ++t) {
    DeviceScope on(graph, cpu(t));
    rows[t].push_back({constant(graph, Tensor({4}, DType::kF32)), v});
  }
  const std::vector<Output> weights{constant(graph, Tensor(3.0F)), constant(graph, Tensor(1.0F))};
  std::vector<Output> means;
  for (const ReduceOptions& how : {ReduceOptions(), ReduceOptions{.weights = weights}}) {
    DeviceScope on(graph, cpu(1));
    means.push_back(make_strategy("colocate")->reduce(GradientTable(rows), how).at(1, 0).value);
  }
  Session session(graph, {.device_count = {{"CPU", 2}}});
  for (const Output& mean : means) {
    EXPECT_EQ(session.placement(mean), session.placement(v.ref())) << mean.name();
    EXPECT_EQ(session.placement(mean.node().input(0)), session.placement(v.ref())) << mean.name();
  }
}

TEST(Packed, CombinesPartsInsteadOfVariables) {
  TestGradients gradients(4, std::vector<Shape>(6, Shape{1000}));
  make_strategy("collective")->reduce(gradients.table(), {.packing = {.parts = 4}});
  EXPECT_EQ(nodes_of(gradients.graph, kAllReduce).size(), 4U);
  TestGradients others(4, std::vector<Shape>(6, Shape{1000}));
  make_strategy("hierarchical")->reduce(others.table(), {.packing = {.parts = 4}});
  EXPECT_EQ(nodes_of(others.graph, kAddN).size(), 12U);
}

TEST(Packed, RefusesWithThePackersReason) {
  TestGradients gradients(2, {{100}});
  const std::string message = message_of(
      [&] { make_strategy("naive")->reduce(gradients.table(), {.packing = {.parts = 4}}); });
  EXPECT_THAT(message, HasSubstr("gradient_repacking=4"));
  EXPECT_THAT(message, HasSubstr("100 elements"));
}

TEST(NaiveCpu, SumsEverythingOnCpuZero) {
  TestGradients gradients(3, {{4}, {5}, {}});
  const GradientTable means = make_strategy("naive_cpu")->reduce(gradients.table());
  EXPECT_EQ(nodes_of(gradients.graph, kAddN).size(), 3U);
  for (int v = 0; v < 3; ++v) {
    EXPECT_EQ(means.at(2, v).value, means.at(0, v).value);
    EXPECT_EQ(means.at(1, v).value.device(), cpu(0));
  }
}

TEST(Nccl, IsRefusedWithoutGpusInsteadOfFallingBack) {
  TestGradients gradients(2, {{4}});
  const std::string why = "NCCL needs GPUs, but tower 0 is on CPU:0; use collective";
  EXPECT_EQ(message_of([&] { make_strategy("nccl")->reduce(gradients.table()); }), why);
  const auto nccl = make_strategy("nccl");
  EXPECT_EQ(nccl->refusal(cpus(2)), why);
  EXPECT_EQ(nccl->refusal({"/gpu:0", "/cpu:1"}),
            "NCCL needs GPUs, but tower 1 is on CPU:1; use collective");
  EXPECT_EQ(nccl->refusal({"/gpu:0", "/gpu:1"}), "");
  EXPECT_EQ(nccl->refusal(std::vector<DeviceSpec>(2)), "") << "they may be placed on GPUs";
  EXPECT_FALSE(nccl->canonical(2));
}

TEST(Nccl, MakesANodeForEachTensorOrOneForAll) {
  for (const bool in_one_node : {false, true}) {
    TestGradients gradients(gpus(3), {{4}, {2, 3}});
    auto nccl = make_strategy("nccl");
    if (in_one_node) nccl = nccl->in_one_node();
    const GradientTable sums = nccl->reduce(gradients.table());
    const std::vector<Node*> nodes = nodes_of(gradients.graph, kNcclAllReduce);
    ASSERT_EQ(nodes.size(), in_one_node ? 1U : 2U);
    EXPECT_EQ(nodes[0]->inputs().size(), in_one_node ? 6U : 3U);
    EXPECT_TRUE(nodes[0]->options<AllReduceOptions>().mean) << "it divides itself";
    EXPECT_EQ(collective_size(*nodes[0]), 3);
    for (int t = 0; t < 3; ++t)
      EXPECT_EQ(sums.at(t, 1).value.node().op().name, kNcclAllReduce.name);
  }
}

TEST(SeveralProcesses, AreNeededByStrategiesWithASlash) {
  TestGradients gradients(2, {{4}});
  for (const char* spec : {"nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu/pscpu", "nccl/xring#2",
                           "pscpu/pscpu#2", "naive:2k:nccl/xring"})
    EXPECT_THAT(message_of([&] { make_strategy(spec)->reduce(gradients.table()); }),
                HasSubstr("needs several processes"))
        << spec;
}

TEST(Refusals, AreGivenBeforeAnythingIsBuiltAndByWrappersToo) {
  EXPECT_EQ(make_strategy("hierarchical")->refusal(cpus(4)), "");
  for (const char* spec : {"hierarchical", "naive:1K:hierarchical"}) {
    EXPECT_THAT(make_strategy(spec)->refusal(cpus(3)), HasSubstr("even number")) << spec;
    EXPECT_THAT(chunked(make_strategy(spec), 4)->refusal(cpus(3)), HasSubstr("even number"));
  }
  for (const char* name :
       {"collective", "halving_doubling", "naive", "naive_cpu", "ring", "shuffle"})
    for (const int towers : {1, 2, 3, 4, 5, 6, 7, 8})
      EXPECT_EQ(make_strategy(name)->refusal(cpus(towers)), "") << name;
}

TEST(Refusals, OfSeveralProcessesAreThoseOfAllStrategiesInside) {
  const std::vector<DeviceSpec> devices = cpus(2);
  for (const char* spec : {"collective", "collective#2", "collective:1K:ring:4K:collective#3"})
    EXPECT_EQ(make_strategy(spec)->refusal_of_processes(devices), "") << spec;
  for (const char* spec : {"naive", "shuffle#2", "collective:1K:naive", "naive:1K:ring"}) {
    const std::string why =
        "the strategy combines the gradients of one process, and this is one of several; use "
        "collective, ring or mpi";
    EXPECT_EQ(make_strategy(spec)->refusal_of_processes(devices), why) << spec;
    EXPECT_EQ(chunked(make_strategy(spec), 4)->refusal_of_processes(devices), why) << spec;
  }
}

TEST(RingOfProcesses, SendsEachTensorByItselfOrABucketAsOneRow) {
  for (const bool in_one_node : {false, true}) {
    TestGradients gradients(cpus(2), {{40}, {2, 30}}, {.rank = 1, .size = 3});
    const auto strategy = make_strategy("ring");
    const auto for_buckets = strategy->in_one_node();
    (in_one_node ? *for_buckets : *strategy).combine(gradients.table(), Reduction::kSum);
    int sends = 0;
    for (std::size_t id = 0; id < gradients.graph.size(); ++id)
      sends += std::string_view(gradients.graph.node(id).op().name) == "RingSend";
    EXPECT_EQ(sends, in_one_node ? 2 : 4);
  }
  EXPECT_THAT(make_strategy("ring#2")->refusal_of_processes(cpus(2)), HasSubstr("no chunks"));
}

class Forgetful final : public Strategy {
  std::vector<std::vector<Output>> sum(const GradientTable& grads) const override {
    return {{grads.at(0, 0).value}, {}};
  }
};

TEST(Strategy, RefusesResultsOfAnotherLayout) {
  TestGradients gradients(2, {{4}});
  EXPECT_THAT(
      message_of([&] { Forgetful().reduce(gradients.table(), {.reduction = Reduction::kSum}); }),
      HasSubstr("combined gradients of tower 1 are 0 instead of 1; the first without one is that "
                "of variable 'v0'"));
}

TEST(Strategy, RefusesToLayOutAResultLessThanThereAreTowers) {
  TestGradients gradients(3, {{4}});
  const GradientTable table = gradients.table();
  EXPECT_THAT(message_of([&] {
                by_variable(table, [&](int v) { return std::vector{table.at(0, v).value}; });
              }),
              HasSubstr("a strategy gives 1 results for the gradients of a variable instead of one "
                        "for each of 3 towers; the first gradient is "));
}

}  // namespace strategies_test
}  // namespace belfry
