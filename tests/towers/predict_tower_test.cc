// Towers that predict, beside training towers and alone.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/support/path_of_test.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/layers.h"

namespace belfry {
namespace predict_tower_test {

using testing::AllOf;
using testing::HasSubstr;

std::string at_line(unsigned line) { return cat("predict_tower_test.cc:", line); }

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
  const std::string message = message_of<NotFoundError>([&] {
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
            HasSubstr("predict_tower (predict_tower_test.cc:"), HasSubstr(".trainable = false")));
  EXPECT_NO_THROW(build(false));
}

void normalised_model(Tower& tower) {
  const Output x = placeholder(tower.graph(), "x", DType::kF32, {kUnknownSize, 3});
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
  const std::string path = path_of_test("");
  const Tensor rows({2, 3}, std::vector<float>{1, 2, 3, -1, 0, 2});
  Graph training(7), inference(8);
  replicate(training, cpus(2), VariablePolicy::kReplicated, normalised_model);
  const TowerRecord trained = predict_tower(training, {}, normalised_model);
  const TowerRecord alone = predict_tower(inference, {}, normalised_model);
  Session saved(training, {.device_count = {{"CPU", 2}}}), restored(inference);
  save_checkpoint(saved, path);
  const auto predict = [&](Session& session, const TowerRecord& tower) {
    const std::vector<FeedValue> feeds{{tower.get("x"), rows}};
    return session.run(tower.get("y"), feeds);
  };
  EXPECT_NE(predict(saved, trained), predict(restored, alone));
  restore_checkpoint(restored, path);
  EXPECT_EQ(predict(saved, trained), predict(restored, alone));
  std::filesystem::remove_all(path);
}

}  // namespace predict_tower_test
}  // namespace belfry
