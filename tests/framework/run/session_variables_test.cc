// First values of variables: who makes them, and where.
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/reduce.h"
#include "belfry/tests/support/interpreter.h"

namespace belfry {
namespace session_variables_test {

constexpr std::int64_t kLarge = 3 << 20;  // elements: worth threads of their own

class FirstValues : public ::testing::Test {
 protected:
  ~FirstValues() override { set_allocation_hook({}); }
  Graph graph;
  const Variable w = variable(graph, "w", {kLarge}, {.initializer = init::normal(0.5)});
  const Variable b = variable(graph, "b", {7}, {.initializer = init::uniform(-1, 1)});
  const Variable zero = variable(graph, "zero", {kLarge}, {.initializer = init::zeros()});
};

TEST_F(FirstValues, DoNotDependOnTheNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    Session session(graph, {.threads = threads});
    for (const Variable& v : {w, b, zero})
      EXPECT_TRUE(session.read(v) == evaluate(v.node().variable().initial)) << v.name();
  }
}

TEST_F(FirstValues, DoNotDependOnStepsAndRunsBefore) {
  Session session(graph, {.threads = 2});
  session.set_step(7);
  EXPECT_TRUE(session.read(w) == evaluate(w.node().variable().initial));
}

TEST_F(FirstValues, AreMadeInTheMemoryOfTheirVariables) {
  Session session(graph, {.threads = 2});
  int large = 0;
  set_allocation_hook([&](const std::string&, std::size_t bytes) { large += bytes >= 4 * kLarge; });
  session.prepare({reduce_sum(w), reduce_sum(zero)});
  EXPECT_EQ(large, 2) << "a variable each, and nothing else";
}

}  // namespace session_variables_test
}  // namespace belfry
