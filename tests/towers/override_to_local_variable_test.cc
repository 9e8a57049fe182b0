#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/variable_getters.h"

namespace belfry {
namespace override_to_local_variable_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(OverrideToLocalVariable, MovesVariablesFromTheGlobalToTheLocalCollection) {
  Graph graph;
  {
    auto local = override_to_local_variable();
    VariableScope scope(graph, local);
    variable(graph, "v", {2});
  }
  variable(graph, "w", {2});
  EXPECT_THAT(names_of(graph.variables(kGlobalVariables)), ElementsAre("w"));
  EXPECT_THAT(names_of(graph.variables(kLocalVariables)), ElementsAre("v"));
  EXPECT_THAT(names_of(graph.variables(kTrainableVariables)), ElementsAre("v", "w"));
  EXPECT_TRUE(graph.find("v").variable().local);
}

TEST(OverrideToLocalVariable, KeepsOtherCollections) {
  Graph graph;
  auto local = override_to_local_variable(true);
  VariableScope scope(graph, local);
  variable(graph, "v", {2},
           {.trainable = false, .collections = {"model_variables", std::string(kGlobalVariables)}});
  EXPECT_THAT(names_of(graph.variables("model_variables")), ElementsAre("v"));
  EXPECT_THAT(names_of(graph.variables(kLocalVariables)), ElementsAre("v"));
  EXPECT_THAT(graph.variables(kGlobalVariables), IsEmpty());
  EXPECT_THAT(graph.variables(kTrainableVariables), IsEmpty());
}

TEST(OverrideToLocalVariable, ListsAVariableOnceThatIsLocalAlready) {
  Graph graph;
  auto local = override_to_local_variable();
  VariableScope scope(graph, local);
  variable(graph, "v", {2},
           {.collections = {std::string(kLocalVariables), std::string(kGlobalVariables)}});
  EXPECT_THAT(names_of(graph.variables(kLocalVariables)), ElementsAre("v"));
}

// tensorpack fails to remove a collection that is not there; without the key it hits an unbound
// name.
TEST(OverrideToLocalVariable, RefusesCollectionsWithoutTheGlobalOne) {
  Graph graph;
  auto local = override_to_local_variable();
  VariableScope scope(graph, local);
  EXPECT_THAT(message_of([&] { variable(graph, "v", {2}, {.collections = {"mine"}}); }),
              AllOf(HasSubstr("variable 'v'"), HasSubstr("[mine]"), HasSubstr("'variables'")));
}

TEST(OverrideToLocalVariable, ChangesNothingWhenDisabled) {
  Graph graph;
  auto local = override_to_local_variable(false);
  VariableScope scope(graph, local);
  variable(graph, "v", {2});
  variable(graph, "w", {2}, {.collections = {"mine"}});
  EXPECT_THAT(names_of(graph.variables(kGlobalVariables)), ElementsAre("v"));
}

}  // namespace override_to_local_variable_test
}  // namespace belfry
