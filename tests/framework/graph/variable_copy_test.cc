// Variables of towers: copies, their originals and prefixes.
#include <algorithm>
#include <chrono>
#include <thread>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace variable_copy_test {

using ::testing::ContainsRegex;

Variable zeros(Graph& graph, const char* name) {
  return variable(graph, name, {2}, {.initializer = init::zeros()});
}

TEST(Variable, ACopyStartsFromAValueBetweenTwoRuns) {
  constexpr std::int64_t kCount = 1 << 18;
  Graph graph;
  const Variable v = variable(graph, "v", {kCount}, {.initializer = init::zeros()});
  Node& add = assign_add(v, fill(graph, {kCount}, 1));
  std::vector<Variable> copies;
  for (int t = 1; t <= 20; ++t)
    copies.push_back(variable(graph, cat("tower", t, "/v"), {kCount}, {.copy_of = &v.node()}));
  Session session(graph);
  CompiledStep& step = session.prepare({add});
  const std::jthread runs([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      step.run();
      std::this_thread::sleep_for(std::chrono::microseconds(50));  // lets others at the session
    }
  });
  for (const Variable& copy : copies) {
    const Tensor value = session.read(copy);
    const auto [least, most] = std::ranges::minmax(value.data<float>());
    EXPECT_EQ(least, most);
  }
}

TEST(Variable, ACopyHasTheFirstValueOfItsOriginal) {
  Graph graph;
  const Variable w = zeros(graph, "w");
  const std::size_t nodes = graph.size();
  const Variable copy =
      variable(graph, "tower1/w", {2}, {.initializer = init::ones(), .copy_of = &w.node()});
  EXPECT_EQ(graph.size(), nodes + 1) << "it needs no nodes that make another one";
  EXPECT_EQ(copy.node().variable().initial, w.node().variable().initial);
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { variable(graph, "tower1/v", {3}, {.copy_of = &w.node()}); }),
              ContainsRegex("'tower1/v' .*: its original has f32\\[2\\] instead of f32\\[3\\]"));
}

TEST(Variable, OriginalsAreThoseThatAreNoCopies) {
  Graph graph;
  const Variable a = zeros(graph, "a"), b = zeros(graph, "b");
  variable(graph, "tower1/a", {2}, {.copy_of = &a.node()});
  EXPECT_EQ(graph.variables().size(), 3u);
  EXPECT_EQ(originals_of(graph.variables()), (std::vector{a, b}));
}

TEST(Variable, DescribesItselfByItsLogicalName) {
  Graph graph;
  const ReplicaScope replica(graph, "tower1/", 1);
  const Variable v = variable(graph, "tower1/fc/W", {4, 3});
  EXPECT_EQ(v.node().origin().prefix, "tower1/");
  EXPECT_THAT(v.describe().str(),
              ContainsRegex("^'fc/W' f32\\[4,3\\] \\(built at variable_copy_test.cc:[0-9]+\\)$"));
  EXPECT_EQ(zeros(graph, "v").node().origin().prefix, "");
}

}  // namespace variable_copy_test
}  // namespace belfry
