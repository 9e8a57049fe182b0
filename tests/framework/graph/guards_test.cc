#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace guards_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string placed(Graph& graph) { return fill(graph, {}, 0).device().str(); }

TEST(HostScope, IsTheHostOfAJobWhateverIsOutside) {
  Graph graph;
  DeviceScope outer(graph, [](const Node&) { return DeviceSpec("/cpu:9"); });
  const Output anchor = fill(graph, {}, 0);
  ColocateWith beside(anchor);
  {
    HostScope host(graph, "/job:worker/task:3/gpu:1");
    const Output x = fill(graph, {}, 0);
    EXPECT_EQ(x.device().str(), "/job:worker/task:3/device:CPU:0");
    EXPECT_THAT(names_of(x.node().request().colocation), IsEmpty());
  }
  EXPECT_EQ(placed(graph), "/device:CPU:9");
}

// A guard on the heap ends before one inside it. The error is logged, and the next node throws it,
// once.
template <class Outer, class... Arguments>
void check_nesting(const std::string& text, const std::string& added, Graph& graph,
                   Arguments&&... arguments) {
  auto outer = std::make_unique<Outer>(graph, std::forward<Arguments>(arguments)...);
  {
    DeviceScope inner(graph, "/cpu:1");
    ::testing::internal::CaptureStderr();
    outer.reset();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("E " + text));
    EXPECT_THAT(message_of<InvalidArgument>([&] { placed(graph); }),
                AllOf(HasSubstr("built at guards_test.cc:"), HasSubstr(text)));
    const Output x = fill(graph, {}, 0, DType::kF32, "x");
    EXPECT_EQ(x.device().str(), "/device:CPU:1");  // the inner one is still in force
    EXPECT_EQ(x.name(), added);
    EXPECT_THAT(x.node().control_inputs(), IsEmpty());
    EXPECT_THAT(names_of(x.node().request().colocation), IsEmpty());
  }
  EXPECT_EQ(placed(graph), "");
}

TEST(Guards, ThatEndOutOfOrderAreTakenAwayAndReported) {
  Graph graph;
  const Output anchor = fill(graph, {}, 0);
  check_nesting<DeviceScope>(
      "Exiting device scope without proper scope nesting. (scope "
      "/job:a, opened at ",
      "x", graph, DeviceSpec("/job:a"), SourceLine{"model.cc", 7});
  check_nesting<NameScope>(
      "Exiting name scope without proper scope nesting. ('names', opened at model.cc:8)", "x_1",
      graph, "names", SourceLine{"model.cc", 8});
  check_nesting<VariableScope>("Exiting variable scope without proper scope nesting. ('vars', ",
                               "x_2", graph, "vars");
  check_nesting<ControlDependencies>(
      "Exiting control dependencies scope without proper scope nesting. (opened at "
      "guards_test.cc:",
      "x_3", graph, std::vector<Node*>{&anchor.node()});
  check_nesting<ColocateWith>("Exiting colocation scope without proper scope nesting.", "x_4",
                              graph, nullptr);
  check_nesting<SiteScope>("Exiting site scope without proper scope nesting.", "x_5", graph,
                           SourceLine{"model.cc", 7});
  check_nesting<ReplicaScope>("Exiting replica scope without proper scope nesting.", "x_6", graph,
                              "tower1/", 1);
  EXPECT_EQ(graph.scopes().frames().size(), 0u);
}

std::string guards_line(unsigned line) { return cat("guards_test.cc:", line); }

// The line of such a guard is in a header of the standard library.
TEST(Guards, ThatTheStandardLibraryMakesNameTheNewestLineOfTheGraph) {
  Graph graph;
  {
    const auto scope = std::make_unique<DeviceScope>(graph, "/cpu:1");
    const unsigned line = __LINE__ + 1;
    const Output x = fill(graph, {}, 0);
    EXPECT_EQ(x.node().request().reasons[0].site.str(), "a line that is not known");
    std::optional<DeviceScope> inner;
    inner.emplace(graph, "/cpu:2");
    EXPECT_EQ(fill(graph, {}, 0).node().request().reasons[0].site.str(),
              guards_line(line) + " or later");
  }
  const unsigned line = __LINE__ + 1;
  const auto named = std::make_unique<DeviceScope>(graph, "/cpu:1", SourceLine::here());
  EXPECT_EQ(fill(graph, {}, 0).node().request().reasons[0].site.str(), guards_line(line));
}

// The refusal of opening a scope.
template <class Open>
std::string refusal(const Open& open) {
  return message_of<InvalidArgument>([&] { open(); });
}

auto names_its_line(const std::string& what) {
  return ::testing::ContainsRegex(what + " \\(guards_test.cc:[0-9]+\\)");
}

TEST(Guards, ThatAreRefusedNameTheirLine) {
  Graph graph, other;
  const Output foreign = fill(other, {}, 0);
  const auto open_names = [&] { NameScope scope(graph, "bad name!"); };
  EXPECT_THAT(refusal(open_names), AllOf(names_its_line("name scope"),
                                         HasSubstr("'bad name!' is not a valid scope name")));
  EXPECT_THAT(refusal([&] { VariableScope scope(graph, "bad name!"); }),
              names_its_line("variable scope"));
  EXPECT_THAT(refusal([&] { VariableScope scope(graph, "", {.default_name = "a b"}); }),
              names_its_line("variable scope"));
  const VariableScopeOptions both{.default_name = "d", .reuse = VariableReuse::kMustExist};
  EXPECT_THAT(refusal([&] { VariableScope scope(graph, "", both); }),
              names_its_line("variable scope"));
  EXPECT_THAT(refusal([&] { DeviceScope scope(graph, "/foo:1"); }),
              AllOf(names_its_line("device scope"), HasSubstr("Unknown attribute: 'foo'")));
  EXPECT_THAT(refusal([&] { DeviceScope scope(graph, std::string("/foo:1")); }),
              names_its_line("device scope"));
  EXPECT_THAT(refusal([&] { const DeviceScope scope = on_cpu(graph, -1); }),
              names_its_line("on_cpu\\(-1\\)"));
  EXPECT_THAT(refusal([&] { ColocateWith scope{Output()}; }),
              AllOf(names_its_line("colocation scope"), HasSubstr("is empty")));
  EXPECT_THAT(refusal([&] { ControlDependencies scope(graph, {Output()}); }),
              AllOf(names_its_line("control dependencies"), HasSubstr("is empty")));
  EXPECT_THAT(refusal([&] { ControlDependencies scope(graph, {foreign}); }),
              AllOf(names_its_line("control dependencies"), HasSubstr("another graph")));
  EXPECT_THAT(refusal([&] { group(graph, {Variable()}); }),
              AllOf(names_its_line("group"), HasSubstr("is empty")));
}

TEST(Guards, ThatAreRefusedWhereTheStandardLibraryMakesThemNameTheNewestLine) {
  Graph graph;
  const unsigned line = __LINE__ + 1;
  fill(graph, {}, 0);
  for (const char* name : {"bad name!", "_x"})
    EXPECT_THAT(refusal([&] { std::make_unique<NameScope>(graph, name); }),
                HasSubstr(guards_line(line) + " or later"));
  EXPECT_THAT(refusal([&] { std::make_unique<DeviceScope>(graph, "/foo:1"); }),
              HasSubstr(guards_line(line) + " or later"));
}

TEST(SiteScope, NodesNameTheOutermostLine) {
  Graph graph;
  const SourceLine users{"somewhere/model.cc", 41};
  SiteScope outer(graph, users);
  SiteScope inner(graph, SourceLine::here());
  DeviceScope on(graph, "/cpu:1");
  const Node& node = fill(graph, {}, 0).node();
  EXPECT_EQ(node.describe().str(), "Fill 'Fill' (built at model.cc:41)");
  EXPECT_EQ(node.request().reasons[0].site.str(), "model.cc:41");
}

TEST(SiteScope, EndsWithItsBlock) {
  Graph graph;
  { SiteScope scope(graph, SourceLine{"model.cc", 1}); }
  EXPECT_THAT(fill(graph, {}, 0).node().origin().site.str(),
              ::testing::StartsWith("guards_test.cc:"));
}

TEST(ReplicaScope, LogicalNamesLeaveThePrefixOut) {
  Graph graph;
  const Output outside = fill(graph, {}, 0, DType::kF32, "x");
  NameScope names(graph, "tower1");
  ReplicaScope replica(graph, "tower1/", 1);
  const Output inside = fill(graph, {}, 0, DType::kF32, "x");
  EXPECT_EQ(inside.name(), "tower1/x");
  EXPECT_EQ(inside.node().logical_name(), "x");
  EXPECT_EQ(inside.node().origin().replica, 1);
  EXPECT_EQ(outside.node().logical_name(), "x");
  EXPECT_EQ(outside.node().origin().replica, 0);
  NameScope root(graph, "");
  EXPECT_EQ(fill(graph, {}, 0, DType::kF32, "y").node().logical_name(), "y");
}

TEST(ReplicaScope, RandomNumbersOfReplicasDifferByShardOnly) {
  const auto key = [](std::uint64_t seed, const char* prefix, int index, const char* name) {
    Graph graph(seed);
    ReplicaScope replica(graph, prefix, index);
    NameScope names(graph, prefix);
    return random_key(random_uniform(graph, {2}, 0, 1, DType::kF32, name).node());
  };
  EXPECT_EQ(key(1, "tower1/", 1, "x"), key(1, "other/", 1, "x"));
  EXPECT_NE(key(1, "tower1/", 1, "x"), key(1, "tower1/", 2, "x"));
  EXPECT_NE(key(1, "tower1/", 1, "x"), key(2, "tower1/", 1, "x"));
  EXPECT_NE(key(1, "tower1/", 1, "x"), key(1, "tower1/", 1, "y"));
}

}  // namespace guards_test
}  // namespace belfry
