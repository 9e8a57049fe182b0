#include "belfry/framework/graph/collections.h"

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace collections_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Node& named(Graph& graph, const char* name) { return fill(graph, {}, 0, DType::kF32, name).node(); }

TEST(Collections, HaveTheKeysOfTensorFlow) {
  EXPECT_EQ(kGlobalVariables, "variables");
  EXPECT_EQ(kLocalVariables, "local_variables");
  EXPECT_EQ(kModelVariables, "model_variables");
  EXPECT_EQ(kTrainableVariables, "trainable_variables");
  EXPECT_EQ(kMovingAverageVariables, "moving_average_variables");
  EXPECT_EQ(kMetricVariables, "metric_variables");
  EXPECT_EQ(kUpdateOps, "update_ops");
  EXPECT_EQ(kLosses, "losses");
  EXPECT_EQ(kRegularizationLosses, "regularization_losses");
  EXPECT_EQ(kWeights, "weights");
  EXPECT_EQ(kBiases, "biases");
  EXPECT_EQ(kActivations, "activations");
  EXPECT_EQ(kSummaries, "summaries");
  EXPECT_EQ(kSummaryOp, "summary_op");
  EXPECT_EQ(kGlobalStep, "global_step");
  EXPECT_EQ(kEvalStep, "eval_step");
  EXPECT_EQ(kTrainOp, "train_op");
}

class CollectionsTest : public ::testing::Test {
 protected:
  CollectionsTest() {
    for (Node* node : {&a, &b, &a, &c}) graph.add_to_collection("k", *node);
  }
  Graph graph;
  Node& a = named(graph, "tower1/a");
  Node& b = named(graph, "tower10/b");
  Node& c = named(graph, "xtower1/c");
};

TEST_F(CollectionsTest, KeepOrderAndDuplicates) {
  EXPECT_THAT(graph.nodes("k"), ElementsAre(&a, &b, &a, &c));
  EXPECT_THAT(graph.nodes("none"), IsEmpty());
}

TEST_F(CollectionsTest, ScopesMatchAtTheStart) {
  EXPECT_THAT(graph.nodes("k", "tower1"), ElementsAre(&a, &b, &a));
  EXPECT_THAT(graph.nodes("k", "tower1/"), ElementsAre(&a, &a));
  EXPECT_THAT(graph.nodes("k", ".*c"), ElementsAre(&c));
  EXPECT_THAT(graph.nodes("k", "tower(1|2)/"), ElementsAre(&a, &a));
  EXPECT_THAT(graph.nodes("k", "a"), IsEmpty());
}

TEST_F(CollectionsTest, RefuseScopesThatAreNoExpressions) {
  EXPECT_THAT(message_of<InvalidArgument>([&] { graph.nodes("k", "("); }),
              HasSubstr("collection 'k': the scope '(' is not a regular expression"));
}

TEST_F(CollectionsTest, AreCopiedOrTakenAlive) {
  std::vector<Node*> copy = graph.nodes("k");
  copy.clear();
  EXPECT_EQ(graph.nodes("k").size(), 4u);
  graph.collection("k").pop_back();
  EXPECT_EQ(names_of(graph.nodes("k")),
            (std::vector<std::string>{"tower1/a", "tower10/b", "tower1/a"}));
  EXPECT_THAT(graph.collection("new"), IsEmpty());
}

TEST(Collections, OfVariablesAreThoseGivenAndTrainableOnTop) {
  Graph graph;
  const auto add = [&](const char* name, std::vector<std::string> keys, bool trainable) {
    return variable(
        graph, name, {},
        {.initializer = init::zeros(), .trainable = trainable, .collections = std::move(keys)});
  };
  const Variable v = add("fc/v", {}, true), s = add("s", {}, false);
  const Variable mine = add("fc/mine", {"mine", std::string(kModelVariables)}, true);
  const Variable both = add("both", {std::string(kTrainableVariables)}, true);
  EXPECT_THAT(graph.variables(kGlobalVariables), ElementsAre(v, s));
  EXPECT_THAT(graph.variables(kTrainableVariables), ElementsAre(v, mine, both));
  EXPECT_THAT(graph.variables("mine"), ElementsAre(mine));
  EXPECT_THAT(graph.variables(kModelVariables), ElementsAre(mine));
  EXPECT_THAT(graph.variables(kTrainableVariables, "fc/"), ElementsAre(v, mine));
}

}  // namespace collections_test
}  // namespace belfry
