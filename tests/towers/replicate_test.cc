#include "belfry/towers/replicate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace replicate_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string at_line(unsigned line) { return cat("replicate_test.cc:", line); }

TEST(Replicate, NamesNodesByTowerAndPlacesThemOnItsDevice) {
  Graph graph;
  const std::vector<TowerRecord> towers =
      replicate(graph, cpus(3), VariablePolicy::kReplicated, [&](Tower& tower) {
        const Output x = placeholder(graph, "x", DType::kF32, {2});
        EXPECT_EQ(x.name(), cat("tower", tower.index(), "/x"));
        EXPECT_EQ(x.device(), cpu(tower.index()));
        EXPECT_EQ(x.node().logical_name(), "x");
        EXPECT_EQ(x.node().origin().replica, tower.index());
        EXPECT_EQ(tower.total(), 3);
        EXPECT_EQ(tower.is_main(), tower.index() == 0);
        EXPECT_TRUE(tower.is_training());
      });
  ASSERT_EQ(towers.size(), 3U);
  EXPECT_EQ(towers[1].name, "tower1");
  EXPECT_EQ(towers[2].device, cpu(2));
  ASSERT_EQ(towers[2].inputs.size(), 1U);
  EXPECT_EQ(towers[2].inputs[0].name(), "tower2/x");
}

TEST(Replicate, NamesTowersByTheirIndexNotTheirDevice) {
  Graph graph;
  const std::vector<DeviceSpec> gpus{"/gpu:3", "/gpu:1"};
  const auto towers = replicate(graph, gpus, VariablePolicy::kReplicated, two_variables);
  EXPECT_EQ(towers[0].name, "tower0");
  EXPECT_EQ(towers[1].name, "tower1");
  EXPECT_EQ(towers[1].variables[0].device().str(), "/device:GPU:1");
}

TEST(Replicate, DropsTheNameScopesAroundIt) {
  Graph graph;
  NameScope outer(graph, "outer");
  replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    EXPECT_EQ(iota(graph, {1}, 0, "x").name(), cat("tower", tower.index(), "/x"));
  });
}

// Records tell replicas, so other variables may be called tower-something.
TEST(Replicate, LetsNamesBeginWithTowerUnlessTheyAreThoseOfReplicas) {
  for (const VariablePolicy policy :
       {VariablePolicy::kReplicated, VariablePolicy::kOnOneDevice, VariablePolicy::kSpread}) {
    Graph graph;
    const auto towers = replicate(graph, cpus(2), policy, [&](Tower&) {
      for (const char* name : {"tower_height", "tower7", "towers/W"})
        identity(variable(graph, name, {2}));
    });
    EXPECT_EQ(towers[1].variables.size(), 3U);
    EXPECT_EQ(towers[1].variables[0].logical_name(), "tower_height");
    Graph other;
    unsigned line = 0;
    const std::string message = message_of([&] {
      replicate(other, cpus(2), policy, [&](Tower&) {
        line = __LINE__ + 1;
        identity(variable(other, "tower12/fc/W", {2}));
      });
    });
    EXPECT_THAT(message,
                AllOf(HasSubstr("'tower12/fc/W'"), HasSubstr("copy that a tower has of 'fc/W'"),
                      HasSubstr(at_line(line))));
  }
}

TEST(Replicate, LeavesTheScopesAsTheyWere) {
  Graph graph;
  NameScope outer(graph, "outer");
  replicate(graph, cpus(2), VariablePolicy::kReplicated, two_variables);
  EXPECT_EQ(iota(graph, {1}).name(), "outer/Const");
  EXPECT_THROW(replicate(graph, cpus(1), VariablePolicy::kReplicated,
                         [](Tower&) { throw InternalError("stop"); }),
               InternalError);
  EXPECT_TRUE(iota(graph, {1}).device().empty());
  EXPECT_EQ(graph.scopes().replica_prefix(), "");
}

TEST(Replicate, CopiesTowerZerosVariablesAsLocalOnes) {
  Graph graph;
  const auto towers = replicate(graph, cpus(3), VariablePolicy::kReplicated, two_variables);
  EXPECT_THAT(names_of(towers[0].variables), ElementsAre("fc/W", "fc/b"));
  EXPECT_THAT(names_of(towers[2].variables), ElementsAre("tower2/fc/W", "tower2/fc/b"));
  for (int t = 0; t < 3; ++t)
    for (std::size_t v = 0; v < 2; ++v) {
      const Variable variable = towers[t].variables[v];
      EXPECT_EQ(variable.logical_name(), towers[0].variables[v].name());
      EXPECT_EQ(variable.device(), cpu(t));
      EXPECT_EQ(variable.node().variable().local, t > 0);
      EXPECT_EQ(variable.node().variable().copy_of,
                t > 0 ? &towers[0].variables[v].node() : nullptr);
    }
  EXPECT_EQ(graph.variables(kGlobalVariables).size(), 2U);
  EXPECT_EQ(graph.variables(kLocalVariables).size(), 4U);
}

// Freezes weights by their name, which begins with no tower's.
struct FreezeWeights final : VariableGetter {
  void request(VariableRequest& request) override {
    asked_for.push_back(request.name);
    if (request.name == "fc/W") request.options.trainable = false;
  }
  std::vector<std::string> asked_for;
};

TEST(Replicate, AsksGettersByTheNamesOfTowerZero) {
  for (const VariablePolicy policy : kPolicies)
    for (const bool inside : {false, true}) {
      Graph graph;
      FreezeWeights freeze;
      std::optional<VariableScope> around;
      if (!inside) around.emplace(graph, freeze);
      const auto towers = replicate(graph, cpus(2), policy, [&](Tower& tower) {
        std::optional<VariableScope> own;
        if (inside) own.emplace(graph, freeze);
        two_variables(tower);
      });
      const bool copies = policy == VariablePolicy::kReplicated;
      EXPECT_EQ(freeze.asked_for, copies
                                      ? std::vector<std::string>({"fc/W", "fc/b", "fc/W", "fc/b"})
                                      : std::vector<std::string>({"fc/W", "fc/b"}));
      EXPECT_THAT(names_of(towers[1].trainables), ElementsAre(copies ? "tower1/fc/b" : "fc/b"));
      EXPECT_THAT(names_of(towers[1].variables),
                  ElementsAre(copies ? "tower1/fc/W" : "fc/W", copies ? "tower1/fc/b" : "fc/b"));
      const Variable weights = towers[1].variables[0];
      EXPECT_EQ(weights.node().variable().copy_of,
                copies ? &towers[0].variables[0].node() : nullptr);
    }
}

TEST(Replicate, SharesOneCopyOnTheFirstDevice) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kOnOneDevice, two_variables);
  EXPECT_EQ(towers[0].variables, towers[1].variables);
  EXPECT_THAT(names_of(towers[1].variables), ElementsAre("fc/W", "fc/b"));
  for (const Variable v : towers[1].variables) EXPECT_EQ(v.device(), cpu(0));
}

TEST(Replicate, SpreadsOneCopyOverTheDevices) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kSpread, [&](Tower& tower) {
    int i = 0;
    for (const std::int64_t size : {100, 50, 60, 40, 10}) {
      const Variable v = variable(graph, cat("v", i++), {size});
      EXPECT_EQ(identity(v).device(), cpu(tower.index()));
    }
  });
  std::vector<DeviceSpec> devices;
  for (const Variable v : towers[1].variables) devices.push_back(v.device());
  EXPECT_THAT(devices, ElementsAre(cpu(0), cpu(1), cpu(1), cpu(0), cpu(1)));
  EXPECT_EQ(graph.variables(kTrainableVariables).size(), 5U);
}

TEST(Replicate, GivesTowersTheirOwnRandomNumbersUnderOneName) {
  Graph graph;
  std::vector<Output> noise;
  replicate(graph, cpus(2), VariablePolicy::kReplicated,
            [&](Tower&) { noise.push_back(random_uniform(graph, {3})); });
  EXPECT_EQ(noise[0].node().logical_name(), noise[1].node().logical_name());
  EXPECT_NE(random_key(noise[0].node()), random_key(noise[1].node()));
}

TEST(Replicate, CollectsLossesMetricsAndOutputs) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    tower.loss(constant(graph, 2.0));
    tower.metric("accuracy", constant(graph, 0.5));
    tower.output("logits", iota(graph, {2, 10}));
  });
  EXPECT_EQ(towers[1].loss.device(), cpu(1));
  ASSERT_EQ(towers[1].metrics.size(), 1U);
  EXPECT_EQ(towers[1].metrics[0].name, "accuracy");
  EXPECT_EQ(towers[1].outputs[0].value.shape(), (Shape{2, 10}));
}

// The error if tower 1 builds `other`, and tower 0 has fc/W f32[4,3] and fc/b f32[3].
std::string disagreement(VariablePolicy policy, const std::function<void(Graph&)>& other) {
  Graph graph;
  return message_of([&] {
    replicate(graph, cpus(2), policy, [&](Tower& tower) {
      if (tower.index() == 0) return two_variables(tower);
      VariableScope scope(graph, "fc");
      other(graph);
    });
  });
}

TEST(Replicate, RefusesTowersOfWhichOneLacksAVariable) {
  for (const VariablePolicy policy : kPolicies)
    EXPECT_THAT(
        disagreement(policy,
                     [](Graph& graph) {
                       identity(variable(graph, "W", {4, 3}));
                     }),
        AllOf(HasSubstr("tower 0 has variable 'fc/b' f32[3] (built at towers_test_support.h:"),
              HasSubstr("tower 1, replicated at replicate_test.cc:"),
              HasSubstr("make the same variables, in one order, in every tower")));
}

TEST(Replicate, RefusesTowersOfWhichOneHasAnotherVariable) {
  for (const VariablePolicy policy : kPolicies) {
    unsigned line = 0;
    const std::string message = disagreement(policy, [&](Graph& graph) {
      identity(variable(graph, "W", {4, 3}));
      identity(variable(graph, "b", {3}));
      line = __LINE__ + 1;
      identity(variable(graph, "scale", {3}));
    });
    EXPECT_THAT(message, AllOf(HasSubstr("tower 1 has variable 'fc/scale'"),
                               HasSubstr(at_line(line)), HasSubstr("tower 0, replicated at")));
  }
}

TEST(Replicate, RefusesAVariableOfAnotherShapeNamingBothLines) {
  for (const VariablePolicy policy : kPolicies) {
    unsigned line = 0;
    const std::string message = disagreement(policy, [&](Graph& graph) {
      line = __LINE__ + 1;
      identity(variable(graph, "W", {4, 2}));
      identity(variable(graph, "b", {3}));
    });
    EXPECT_THAT(message, AllOf(HasSubstr("fc/W"), HasSubstr("f32[4,3]"), HasSubstr("f32[4,2]"),
                               HasSubstr(at_line(line)),
                               HasSubstr(cat("towers_test_support.h:", kLineOfW))));
  }
}

TEST(Replicate, RefusesAVariableOfAnotherDType) {
  for (const VariablePolicy policy : kPolicies)
    EXPECT_THAT(disagreement(policy,
                             [](Graph& graph) {
                               identity(variable(graph, "W", {4, 3}, {.dtype = DType::kF64}));
                               identity(variable(graph, "b", {3}));
                             }),
                AllOf(HasSubstr("fc/W"), HasSubstr("f32[4,3]"), HasSubstr("f64[4,3]")));
}

TEST(Replicate, RefusesReplicasInAnotherOrder) {
  EXPECT_THAT(disagreement(VariablePolicy::kReplicated,
                           [](Graph& graph) {
                             identity(variable(graph, "b", {3}));
                             identity(variable(graph, "W", {4, 3}));
                           }),
              HasSubstr("order of variables"));
}

TEST(Replicate, RefusesReplicasThatOnlyOneTowerTrains) {
  EXPECT_THAT(disagreement(VariablePolicy::kReplicated,
                           [](Graph& graph) {
                             identity(variable(graph, "W", {4, 3}, {.trainable = false}));
                             identity(variable(graph, "b", {3}));
                           }),
              HasSubstr("only one of them trains it"));
}

TEST(Replicate, RefusesAnEmptyTowerFunction) {
  Graph graph;
  const std::function<void(Tower&)> none;
  for (const auto& build :
       {std::function<void()>(
            [&] { replicate(graph, cpus(1), VariablePolicy::kReplicated, none); }),
        std::function<void()>([&] { predict_tower(graph, {.device = cpus(1)[0]}, none); })})
    EXPECT_THAT(message_of<InvalidArgument>(build),
                AllOf(HasSubstr("the tower function (replicate_test"),
                      HasSubstr("give one that builds the model")));
}

TEST(Replicate, RefusesNoDevicesAndDevicesNamedTwice) {
  Graph graph;
  EXPECT_THAT(message_of([&] { replicate(graph, {}, VariablePolicy::kReplicated, two_variables); }),
              HasSubstr("at least one device"));
  const std::vector<DeviceSpec> twice{"cpu:0", "/device:CPU:0"};
  EXPECT_THAT(
      message_of([&] { replicate(graph, twice, VariablePolicy::kReplicated, two_variables); }),
      HasSubstr("/device:CPU:0 is named twice"));
}

TEST(Replicate, ScopesWithDefaultNamesAreTheSameInAllTowers) {
  for (const VariablePolicy policy :
       {VariablePolicy::kOnOneDevice, VariablePolicy::kSpread, VariablePolicy::kReplicated}) {
    Graph graph;
    const auto build = [](Tower& tower) {
      for (int block = 0; block < 2; ++block) {
        VariableScope scope(tower.graph(), "", {.default_name = "block"});
        const Variable w = variable(tower.graph(), "w", {2}, {.initializer = init::zeros()});
        tower.output(scope.path(), identity(w));
      }
    };
    for (const TowerRecord& tower : replicate(graph, cpus(3), policy, build)) {
      ASSERT_EQ(tower.variables.size(), 2U);
      EXPECT_EQ(tower.variables[0].logical_name(), "block/w");
      EXPECT_EQ(tower.variables[1].logical_name(), "block_1/w");
    }
    EXPECT_EQ(predict_tower(graph, {}, build).variables[1].name(), "block_1/w");
  }
}

TEST(Replicate, RefusesTowersInsideTowersAndVariableScopes) {
  Graph graph;
  EXPECT_THAT(message_of([&] {
                replicate(graph, cpus(1), VariablePolicy::kReplicated,
                          [&](Tower&) { Tower inner(graph, "inner"); });
              }),
              HasSubstr("is built inside tower 'tower0'; towers do not nest: build it after that"));
  VariableScope scope(graph, "model");
  EXPECT_THAT(
      message_of([&] { replicate(graph, cpus(1), VariablePolicy::kReplicated, two_variables); }),
      HasSubstr("variable scope 'model'"));
}

TEST(Replicate, RefusesACollectiveOfOneTowersTensors) {
  Graph graph;
  const unsigned line = __LINE__ + 4;
  const std::string message = message_of([&] {
    replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
      const Output x = iota(tower.graph(), {4});
      all_reduce(std::vector{x, x}, {}, "sync");
    });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("AllReduce 'tower0/sync'"), HasSubstr(at_line(line)),
                             HasSubstr("input 1"), HasSubstr("tower 0 instead of tower 1")));
}

TEST(Replicate, RefusesACollectiveThatATowerHasNoPartIn) {
  Graph graph;
  const std::string message = message_of([&] {
    replicate(graph, cpus(3), VariablePolicy::kReplicated,
              [&](Tower& tower) { all_reduce(std::vector{iota(tower.graph(), {4})}, {}, "sync"); });
  });
  EXPECT_THAT(message, AllOf(HasSubstr("AllReduce 'tower0/sync'"), HasSubstr("1 inputs"),
                             HasSubstr("one from each of the 3 towers")));
}

TEST(Replicate, TakesACollectiveThatTheLastTowerBuilds) {
  Graph graph;
  std::vector<Output> parts;
  EXPECT_NO_THROW(replicate(graph, cpus(3), VariablePolicy::kReplicated, [&](Tower& tower) {
    parts.push_back(iota(tower.graph(), {4}));
    if (parts.size() == 3) all_reduce(parts);
  }));
}

}  // namespace replicate_test
}  // namespace belfry
