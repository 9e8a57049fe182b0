// Initialisers that are refused.
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace variable_refusal_test {

using ::testing::HasSubstr;

Variable zeros(Graph& graph, const char* name) {
  return variable(graph, name, {2}, {.initializer = init::zeros()});
}

TEST(Variable, ThatIsRefusedLeavesNothingInTheGraph) {
  Graph graph;
  const Variable other = zeros(graph, "other");
  const std::size_t size = graph.size();
  const Initializer throwing = [&](Graph&, const Shape& shape, DType dtype) -> Output {
    fill(graph, shape, 1, dtype, "half");
    variable(graph, "inner", {2});
    graph.add_to_collection(kUpdateOps, identity(other).node());
    throw NotFoundError("no such file of weights");
  };
  const Initializer wrong = [](Graph& g, const Shape&, DType) { return fill(g, {3}, 0); };
  EXPECT_EQ(
      message_of<NotFoundError>([&] { variable(graph, "w", {2}, {.initializer = throwing}); }),
      "no such file of weights");
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { variable(graph, "w", {2}, {.initializer = wrong}); }),
      HasSubstr("the initialiser gives f32[3] instead of f32[2]"));
  EXPECT_EQ(graph.size(), size);
  EXPECT_THROW(graph.find("w"), NotFoundError);
  EXPECT_EQ(graph.variables(), std::vector{other});
  EXPECT_EQ(graph.variables(kGlobalVariables), std::vector{other});
  EXPECT_TRUE(graph.nodes(kUpdateOps).empty());
  const Variable w = zeros(graph, "w");
  EXPECT_EQ(w.name(), "w");
  EXPECT_EQ(w.node().variable().initial.name(), "w/Initializer/Fill");
  EXPECT_EQ(zeros(graph, "inner").name(), "inner");
  EXPECT_EQ(zeros(graph, "W").name(), "W_1");
  // The initialiser was the first to read it.
  EXPECT_EQ(static_cast<Output>(other).name(), "other/read");
  Session session(graph);
  EXPECT_EQ(session.run(other), floats({0, 0}));
}

}  // namespace variable_refusal_test
}  // namespace belfry
