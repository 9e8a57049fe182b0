#include "belfry/towers/replicate.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/split.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/layers.h"

namespace belfry {
namespace replicate_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string at_line(unsigned line) { return cat("replicate_test.cc:", line); }

// A tower function with two variables and nodes that use them.
constexpr unsigned kLineOfW = __LINE__ + 3;
void two_variables(Tower& tower) {
  VariableScope scope(tower.graph(), "fc");
  identity(variable(tower.graph(), "W", {4, 3}));
  identity(variable(tower.graph(), "b", {3}));
}

TEST(Replicate, NamesNodesByTowerAndPlacesThemOnItsDevice) {
  Graph graph;
  const std::vector<TowerRecord> towers =
      replicate(graph, cpus(3), VariablePolicy::kReplicated, [&](Tower& tower) {
        const Output x = placeholder(graph, "x", DType::kF32, {2});
        EXPECT_EQ(x.name(), cat("tower", tower.index(), "/x"));
        EXPECT_EQ(x.device(), cpu(tower.index()));
        EXPECT_EQ(x.node().logical_name(), "x");
        EXPECT_EQ(x.node().replica(), tower.index());
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

// Replicas are known by record, so other variables may be called tower-something.
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
                         [](Tower&) { throw Internal("stop"); }),
               Internal);
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

TEST(TowerRecord, FindsTensorsByTheirNamesInTheTower) {
  Graph graph;
  Output y, second;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    placeholder(graph, "x", DType::kF32, {2});
    two_variables(tower);
    y = iota(graph, {2}, 0, "block/y");
    second = split(y, 2, 0, "halves")[1];
  });
  const TowerRecord& tower = towers[1];
  EXPECT_EQ(tower.get("x"), tower.inputs[0]);
  EXPECT_EQ(tower.get("x:0"), tower.inputs[0]);
  EXPECT_EQ(tower.get("block/y"), y);
  EXPECT_EQ(tower.get("halves:1"), second);
  EXPECT_EQ(tower.get("fc/W"), Output(tower.variables[0]));
  EXPECT_EQ(towers[0].get("fc/W"), Output(towers[0].variables[0]));
  EXPECT_EQ(towers[0].get("block/y").device(), cpu(0));
  for (const char* name : {"z", "halves:2", "x:1", "x:12", "x:", "tower1/x"})
    EXPECT_THAT(message_of<NotFound>([&] { tower.get(name); }),
                HasSubstr(cat("tower 'tower1' has no tensor '", name, "'")));
}

// What one tower function of each call makes; y has a suffix in all but the first.
struct Models {
  std::vector<TowerRecord> records;
  std::vector<Output> ys;
  unsigned line = 0;
};

template <class Call>
void build_models(Models& models, const Call& call) {
  for (int model = 0; model < 2; ++model)
    models.records.push_back(call([&](Tower& tower) {
      models.line = __LINE__ + 1;
      models.ys.push_back(iota(tower.graph(), {2}, model, "y"));
    }));
}

// tensorpack's handle of the second tower gives the tensor of the first, "tower0/y:0".
TEST(TowerRecord, OfTwoCallsOnOneGraphGivesItsOwnTensorsOrRefuses) {
  Graph graph;
  Models trained, predicted;
  build_models(trained, [&](const std::function<void(Tower&)>& build) {
    return replicate(graph, cpus(1), VariablePolicy::kReplicated, build)[0];
  });
  build_models(predicted, [&](const std::function<void(Tower&)>& build) {
    return predict_tower(graph, {}, build);
  });
  for (const Models& models : {trained, predicted}) {
    EXPECT_EQ(models.records[0].get("y"), models.ys[0]);
    EXPECT_EQ(models.records[1].get("y_1"), models.ys[1]);
    const std::string& tower = models.records[0].name;
    EXPECT_THAT(message_of([&] { models.records[1].get("y"); }),
                AllOf(HasSubstr(cat("Name conflict! Const '", tower, "/y' (built at ")),
                      HasSubstr(at_line(models.line)), HasSubstr("get(\"y_1\")")));
    EXPECT_THAT(message_of([&] { models.records[0].get("y_1"); }),
                HasSubstr(cat("Name conflict! Const '", tower, "/y_1'")));
  }
}

TEST(TowerRecord, KnowsAsItsOwnWhatItsFunctionMakesInReplicaScopes) {
  Graph graph;
  std::vector<TowerRecord> records;
  for (int model = 0; model < 2; ++model)
    records.push_back(replicate(graph, cpus(1), VariablePolicy::kReplicated, [&](Tower& tower) {
      const ReplicaScope again(graph, "tower0/", 0);
      iota(tower.graph(), {2}, 0, "y");
    })[0]);
  EXPECT_EQ(records[1].get("y_1").node().tower(), records[1].number);
  EXPECT_THROW(records[1].get("y"), InvalidArgument);
}

TEST(TowerRecord, FindsOutputsByTheirNamesAndSuggestsTheNearest) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    tower.output("logits", iota(graph, {2}, 0, "sum"));
  });
  EXPECT_EQ(towers[1].get("logits").name(), "tower1/sum");
  EXPECT_THAT(message_of<NotFound>([&] { towers[1].get("logit"); }),
              HasSubstr("tower 'tower1' has no tensor 'logit'; did you mean 'logits'?"));
}

TEST(TowerRecord, FindsWhatIsMadeBelowItsNameLaterOn) {
  Graph graph;
  const auto towers = replicate(graph, cpus(2), VariablePolicy::kReplicated, two_variables);
  const NameScope again(graph, "tower1/");
  const Output late = iota(graph, {2}, 0, "late");
  EXPECT_EQ(towers[1].get("late"), late);
}

// Summaries of the main tower and updates of training towers are enough.
TEST(Tower, CollectsSummariesInTheMainTowerAndUpdatesInTrainingTowers) {
  Graph graph;
  std::vector<std::size_t> inside;
  const auto build = [&](Tower& tower) {
    const Output x = iota(graph, {1});
    for (const char* key : {"summaries", "update_ops", "losses"})
      graph.add_to_collection(key, x.node());
    inside.push_back(tower.nodes("summaries").size());
  };
  replicate(graph, cpus(3), VariablePolicy::kReplicated, build);
  predict_tower(graph, {}, build);
  EXPECT_THAT(inside, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(graph.nodes("summaries").size(), 1U);
  EXPECT_EQ(graph.nodes("update_ops").size(), 3U);
  EXPECT_EQ(graph.nodes("losses").size(), 4U);
}

TEST(Tower, WithVariablesOfItsOwnNeedsANameAndNoReuseAround) {
  Graph graph;
  EXPECT_THAT(message_of([&] { Tower(graph, {.own_variables = true}); }),
              HasSubstr("needs a name"));
  VariableScope reuse(graph, "", Reuse::kCreateOrGet);
  EXPECT_THAT(
      message_of([&] { replicate(graph, cpus(2), VariablePolicy::kReplicated, two_variables); }),
      HasSubstr("tower 'tower1' (replicate_test.cc:"));
}

TEST(Tower, RefusesLossesAndMetricsThatAreNoScalars) {
  Graph graph;
  Tower tower(graph);
  EXPECT_THAT(message_of([&] { tower.loss(iota(graph, {2})); }), HasSubstr("f32[2]"));
  EXPECT_THAT(message_of([&] { tower.metric("m", iota(graph, {2})); }), HasSubstr("metric 'm'"));
  const Output one = constant(graph, 1.0);
  tower.loss(one);
  EXPECT_THAT(message_of([&] { tower.loss(one); }), HasSubstr("the tower has one"));
  tower.output("y", one);
  EXPECT_THAT(message_of([&] { tower.output("y", one); }), HasSubstr("output 'y'"));
}

TEST(Tower, FindsItsVariablesByScope) {
  Graph graph;
  std::vector<std::vector<std::string>> found;
  replicate(graph, cpus(2), VariablePolicy::kReplicated, [&](Tower& tower) {
    for (const char* name : {"disc/W", "discount", "gen/W"})
      variable(graph, name, {2}, {.trainable = std::string_view(name) != "gen/W"});
    found.push_back(names_of(tower.variables("disc")));
    found.push_back(names_of(tower.trainables()));
  });
  EXPECT_THAT(found[0], ElementsAre("disc/W"));
  EXPECT_THAT(found[2], ElementsAre("tower1/disc/W"));
  EXPECT_THAT(found[3], ElementsAre("tower1/disc/W", "tower1/discount"));
}

// Variables of tower 1 as `other` has them, tower 0's being fc/W f32[4,3] and fc/b f32[3].
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

constexpr VariablePolicy kPolicies[] = {VariablePolicy::kReplicated, VariablePolicy::kOnOneDevice,
                                        VariablePolicy::kSpread};

TEST(Replicate, RefusesTowersOfWhichOneLacksAVariable) {
  for (const VariablePolicy policy : kPolicies)
    EXPECT_THAT(disagreement(policy,
                             [](Graph& graph) {
                               identity(variable(graph, "W", {4, 3}));
                             }),
                AllOf(HasSubstr("tower 0 has variable 'fc/b' f32[3] (built at replicate_test.cc:"),
                      HasSubstr("tower 1, replicated at replicate_test.cc:")));
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
                               HasSubstr(at_line(line)), HasSubstr(at_line(kLineOfW))));
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
                HasSubstr("the tower function (replicate_test"));
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
              HasSubstr("is built inside tower 'tower0'; towers do not nest"));
  VariableScope scope(graph, "model");
  EXPECT_THAT(
      message_of([&] { replicate(graph, cpus(1), VariablePolicy::kReplicated, two_variables); }),
      HasSubstr("variable scope 'model'"));
}

TEST(PredictTower, SharesTowerZerosVariables) {
  for (const VariablePolicy policy : kPolicies) {
    Graph graph;
    const auto towers = replicate(graph, cpus(2), policy, two_variables);
    const std::size_t variables = graph.variables(kGlobalVariables).size();
    const TowerRecord predict = predict_tower(graph, {.device = cpu(1)}, [&](Tower& tower) {
      two_variables(tower);
      EXPECT_FALSE(tower.is_training());
      EXPECT_FALSE(tower.is_main());
      const Output x = placeholder(graph, "x", DType::kF32, {2});
      EXPECT_EQ(x.name(), "tower-pred-0/x");
      EXPECT_EQ(x.device(), cpu(1));
    });
    EXPECT_EQ(predict.variables, towers[0].variables);
    EXPECT_EQ(graph.variables(kGlobalVariables).size(), variables);
    EXPECT_EQ(predict.inputs.size(), 1U);
  }
}

TEST(PredictTower, OnAGraphThatTrainsNeedsItsVariables) {
  Graph graph;
  replicate(graph, cpus(1), VariablePolicy::kReplicated, two_variables);
  unsigned line = 0;
  const std::string message = message_of<NotFound>([&] {
    predict_tower(graph, {}, [&](Tower&) {
      line = __LINE__ + 1;
      variable(graph, "fc/scale", {3});
    });
  });
  EXPECT_THAT(message,
              AllOf(HasSubstr("variable 'fc/scale' does not exist"), HasSubstr(at_line(line)),
                    HasSubstr("training towers before predict_tower")));
}

// tensorpack 0.11: "New TRAINABLE_VARIABLES shouldn't be created in tower-pred-3:
// tower-pred-3/q:0"; with trainable=False it makes tower-pred-3/q_1.
TEST(PredictTower, RefusesNewTrainableVariablesOnAGraphThatTrains) {
  Graph graph;
  replicate(graph, cpus(1), VariablePolicy::kReplicated, two_variables);
  unsigned line = 0;
  const auto build = [&](bool trainable) {
    predict_tower(graph, {.index = 3}, [&](Tower&) {
      line = __LINE__ + 1;
      new_variable(graph, "q", {}, {.trainable = trainable});
    });
  };
  const std::string message = message_of([&] { build(true); });
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("makes the trainable variable 'q' f32[]"), HasSubstr(at_line(line)),
            HasSubstr("predict_tower (replicate_test.cc:"), HasSubstr(".trainable = false")));
  EXPECT_NO_THROW(build(false));
}

void normalised_model(Tower& tower) {
  const Output x = placeholder(tower.graph(), "x", DType::kF32, {kUnknown, 3});
  tower.output("y", batch_norm(tower, "norm", dense(tower, "fc", x, {.units = 2})));
}

// tensorpack's PredictTowerContext makes them, too, if nothing is to be reused.
TEST(PredictTower, AloneMakesTheVariablesOfTheModel) {
  Graph training, inference;
  const auto towers = replicate(training, cpus(1), VariablePolicy::kReplicated, normalised_model);
  const TowerRecord first = predict_tower(inference, {}, normalised_model);
  const auto types = [](const std::vector<Variable>& variables) {
    std::vector<std::string> result;
    for (const Variable v : variables)
      result.push_back(cat(v.name(), " ", v.node().output_type(0), " ", v.trainable()));
    return result;
  };
  EXPECT_THAT(types(first.variables),
              testing::UnorderedElementsAreArray(types(towers[0].variables)));
  EXPECT_EQ(inference.variables(kGlobalVariables).size(), 6U);
  for (const int index : {1, 0})
    EXPECT_EQ(predict_tower(inference, {.index = index}, normalised_model).variables,
              first.variables);
}

TEST(PredictTower, AlonePredictsByTheValuesOfACheckpoint) {
  const std::string path = testing::TempDir() + "/predict_tower_checkpoint";
  const Tensor rows({2, 3}, std::vector<float>{1, 2, 3, -1, 0, 2});
  Graph training(7), inference(8);
  replicate(training, cpus(2), VariablePolicy::kReplicated, normalised_model);
  const TowerRecord trained = predict_tower(training, {}, normalised_model);
  const TowerRecord alone = predict_tower(inference, {}, normalised_model);
  Session saved(training, {.device_count = {{"CPU", 2}}}), restored(inference);
  save_checkpoint(saved, path);
  const auto predict = [&](Session& session, const TowerRecord& tower) {
    const std::vector<Feed> feeds{{tower.get("x"), rows}};
    return session.run(tower.get("y"), feeds);
  };
  EXPECT_NE(predict(saved, trained), predict(restored, alone));
  restore_checkpoint(restored, path);
  EXPECT_EQ(predict(saved, trained), predict(restored, alone));
  std::filesystem::remove_all(path);
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
