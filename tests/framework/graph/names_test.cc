#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace names_test {

using ::testing::HasSubstr;

std::string added(Graph& graph, const char* name) {
  return fill(graph, {}, 0, DType::kF32, name).name();
}

TEST(Names, AreMadeUniqueWithoutRegardToCase) {
  Graph graph;
  std::vector<std::string> names;
  for (const char* name : {"c", "c", "C", "c_1", "c", "c_2", "c"})
    names.push_back(graph.unique_name(name));
  EXPECT_EQ(names, (std::vector<std::string>{"c", "c_1", "C_2", "c_1_1", "c_3", "c_2_1", "c_4"}));
}

TEST(Names, OfScopesThatTakeTurnsAreMadeUniqueInEach) {
  Graph graph;
  std::vector<std::string> names;
  for (const char* name : {"a/b/x", "a/b/x", "A/B/x", "a/bc/x", "a/x", "x", "a/b/x", "a/bc/x"})
    names.push_back(graph.unique_name(name));
  EXPECT_EQ(names, (std::vector<std::string>{"a/b/x", "a/b/x_1", "A/B/x_2", "a/bc/x", "a/x", "x",
                                             "a/b/x_3", "a/bc/x_1"}));
}

TEST(Names, CanBeAskedForWithoutBeingUsedUp) {
  Graph graph;
  EXPECT_EQ(graph.unique_name("p", false), "p");
  EXPECT_EQ(graph.unique_name("p", false), "p");
  EXPECT_EQ(graph.unique_name("p"), "p");
  EXPECT_EQ(graph.unique_name("P", false), "P_1");
  EXPECT_EQ(graph.unique_name("p"), "p_1");
}

TEST(Names, WithASlashAtTheEndAreTakenAsTheyAre) {
  Graph graph;
  NameScope scope(graph, "s");
  EXPECT_EQ(scope.path(), "s/");
  EXPECT_EQ(added(graph, scope.path().c_str()), "s");  // not s/s, nor s_1
  EXPECT_EQ(added(graph, "deep/x/"), "deep/x");        // from the root
  NameScope root(graph, "");
  EXPECT_EQ(added(graph, "s"), "s_1");
  EXPECT_EQ(added(graph, "deep/x"), "deep/x_1");  // TensorFlow 1.15.5: Duplicate node name in graph
}

TEST(Names, TakenAsTheyAreMustBeFree) {
  Graph graph;
  added(graph, "x");
  // TensorFlow 1.15.5 prints "Duplicate node name in graph: 'x'".
  EXPECT_THAT(message_of<InvalidArgument>([&] { added(graph, "x/"); }),
              ::testing::AllOf(HasSubstr("duplicate node name in graph: 'x'"),
                               ::testing::ContainsRegex("names_test.cc:[0-9]+.*names_test.cc:")));
  EXPECT_EQ(added(graph, "y/"), "y");
  EXPECT_EQ(added(graph, "y"), "y_1");
}

TEST(Names, OfScopesMayBeTakenByOneNode) {
  Graph graph;
  added(graph, "a");
  NameScope scope(graph, "s");
  NameScope inner(graph, "a");
  EXPECT_EQ(added(graph, "s/a/"), "s/a");
  EXPECT_THAT(message_of<InvalidArgument>([&] { added(graph, "s/a/"); }),
              HasSubstr("duplicate node name in graph: 's/a'"));
  EXPECT_EQ(added(graph, "x"), "s/a/x");  // the scope continues
}

TEST(Names, OfNodesMustBeValid) {
  Graph graph;
  for (const char* name : {"a b", "_x", "x:0", "/", "-"})
    EXPECT_THAT(message_of<InvalidArgument>([&] { added(graph, name); }),
                HasSubstr("is not a valid node name"));
  NameScope scope(graph, "k");
  EXPECT_EQ(added(graph, "-z"), "k/-z");
}

TEST(Names, OfNodesFollowTheSameRule) {
  Graph graph;
  std::vector<std::string> names;
  for (const char* name : {"c", "c", "C", "c_1"}) names.push_back(added(graph, name));
  EXPECT_EQ(names, (std::vector<std::string>{"c", "c_1", "C_2", "c_1_1"}));
  EXPECT_EQ(fill(graph, {}, 0).name(), "Fill");
  EXPECT_EQ(fill(graph, {}, 0).name(), "Fill_1");
}

TEST(Names, OfOutputsAfterTheFirstHaveTheirNumber) {
  Graph graph;
  Node& node = fill(graph, {}, 0, DType::kF32, "x").node();
  EXPECT_EQ(Output(node, 0).name(), "x");
  EXPECT_EQ(Output(node, 1).name(), "x:1");
}

TEST(NameScope, PrefixesAndIsUniqueItself) {
  Graph graph;
  {
    NameScope a(graph, "a");
    EXPECT_EQ(added(graph, "x"), "a/x");
    NameScope b(graph, "b");
    EXPECT_EQ(added(graph, "x"), "a/b/x");
  }
  EXPECT_EQ(added(graph, "x"), "x");
  NameScope again(graph, "A");
  EXPECT_EQ(added(graph, "x"), "A_1/x");
}

TEST(NameScope, SharesItsTableWithNodes) {
  Graph graph;
  added(graph, "a");
  NameScope a(graph, "a");
  EXPECT_EQ(added(graph, "x"), "a_1/x");
}

TEST(NameScope, WithASlashAtTheEndIsReenteredAsItIs) {
  Graph graph;
  { NameScope a(graph, "a"), b(graph, "b"); }
  NameScope elsewhere(graph, "elsewhere");
  {
    NameScope back(graph, "a/b/");
    EXPECT_EQ(added(graph, "x"), "a/b/x");
    EXPECT_EQ(added(graph, "x"), "a/b/x_1");
  }
  EXPECT_EQ(added(graph, "x"), "elsewhere/x");
}

TEST(NameScope, WithoutANameIsTheRoot) {
  Graph graph;
  NameScope a(graph, "a");
  {
    NameScope root(graph, "");
    EXPECT_EQ(root.path(), "");
    EXPECT_EQ(added(graph, "x"), "x");
  }
  EXPECT_EQ(added(graph, "x"), "a/x");
}

TEST(NameScope, RefusesNamesThatCouldNotBeKeys) {
  Graph graph;
  for (const char* name : {"_a", "/a", "-a", "a b", "a:0", "\xc3\xa4", "a\n"})
    EXPECT_THAT(message_of<InvalidArgument>([&] { NameScope scope(graph, name); }),
                HasSubstr("is not a valid scope name"));
  NameScope ok(graph, "A.b-c_d/0");
  NameScope nested(graph, "_only_inside");
  EXPECT_EQ(added(graph, "x"), "A.b-c_d/0/_only_inside/x");
  EXPECT_THAT(message_of<InvalidArgument>([&] { NameScope scope(graph, "b c"); }),
              HasSubstr("'b c'"));
  EXPECT_EQ(nested.path(), "A.b-c_d/0/_only_inside/");
  EXPECT_EQ(graph.scopes().names(), "A.b-c_d/0/_only_inside");  // as before the refusal
}

TEST(Graph, FindsNodesByNameAndSuggestsTheNearest) {
  Graph graph;
  const Output x = fill(graph, {}, 0, DType::kF32, "weights");
  EXPECT_EQ(&graph.find("weights"), &x.node());
  EXPECT_THAT(message_of<NotFoundError>([&] { graph.find("wieghts"); }),
              HasSubstr("no node 'wieghts'; did you mean 'weights'?"));
}

TEST(Graph, ANameIsNotUsedUpByANodeThatIsRefused) {
  Graph graph;
  const Output x = fill(graph, {2}, 0), y = fill(graph, {3}, 0);
  EXPECT_THROW(graph.add(kAddN, {x, y}, "sum"), InvalidArgument);
  EXPECT_EQ(graph.add(kAddN, {x, x}, "sum").name(), "sum");
}

TEST(Graph, ANameIsNotUsedUpByANodeWhoseDeviceFunctionThrows) {
  Graph graph;
  {
    DeviceScope scope(graph, [](const Node&) { return DeviceSpec("nonsense"); });
    EXPECT_THROW(added(graph, "x"), InvalidArgument);
  }
  EXPECT_EQ(added(graph, "x"), "x");
  EXPECT_EQ(graph.size(), 1u);
}

TEST(Graph, RefusesNodesOnceFrozen) {
  Graph graph;
  graph.freeze();
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { fill(graph, {}, 0, DType::kF32, "late"); }),
      ::testing::AllOf(HasSubstr("Fill 'late' (built at names_test.cc:"), HasSubstr("frozen")));
}

TEST(Graph, RefusesInputsOfOtherGraphsAndEmptyOnes) {
  Graph graph, other;
  const Output x = fill(graph, {}, 0), foreign = fill(other, {}, 0, DType::kF32, "foreign");
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                graph.add(kAddN, {x, foreign});
              }),
              HasSubstr("'foreign' belongs to another graph"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                graph.add(kAddN, {x, Output()});
              }),
              HasSubstr("an input is empty"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                graph.add(kIdentity, {x, x});
              }),
              HasSubstr("takes 1 inputs, not 2"));
}

TEST(Graph, EmptyHandlesSayThatTheyAreEmpty) {
  EXPECT_THAT(message_of<InvalidArgument>([] { Output().shape(); }), HasSubstr("empty Output"));
  EXPECT_THAT(message_of<InvalidArgument>([] { Fetch fetch{Output()}; }),
              HasSubstr("empty Output"));
  EXPECT_THAT(message_of<InvalidArgument>([] { Variable().name(); }), HasSubstr("empty Output"));
}

}  // namespace names_test
}  // namespace belfry
