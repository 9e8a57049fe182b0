// First values of variables: who makes them, and where.
#include <algorithm>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
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

// A training that resumes needs none of those that it overwrites.
TEST_F(FirstValues, AreMadeOnlyWhereAnAwaitedRestoreGivesNone) {
  Session session(graph, {.awaits_restore = true, .threads = 2});
  const Output sum = reduce_sum(w);
  session.prepare({sum, reduce_sum(b)});
  EXPECT_FALSE(session.intact());
  EXPECT_THROW(session.run({sum}), InvalidArgument);
  const Tensor ones = Tensor({kLarge}, std::vector<float>(kLarge, 1));
  const VariableBytes values[] = {{w, {ones.raw(), ones.bytes()}}};
  int large = 0;
  set_allocation_hook([&](const std::string&, std::size_t bytes) { large += bytes >= 4 * kLarge; });
  session.restore(values, 5);
  EXPECT_EQ(large, 0);
  EXPECT_TRUE(session.intact());
  EXPECT_EQ(session.step(), 5u);
  EXPECT_EQ(session.run({sum})[0].item<float>(), kLarge);
  for (const Variable& v : {b, zero})  // one awaited it, the other was unknown
    EXPECT_TRUE(session.read(v) == evaluate(v.node().variable().initial)) << v.name();
}

TEST_F(FirstValues, AreMadeIfAnAwaitedRestoreHasNothing) {
  Session session(graph, {.awaits_restore = true});
  session.prepare({reduce_sum(w)});
  session.restore({}, 0);
  EXPECT_TRUE(session.read(w) == evaluate(w.node().variable().initial));
}

TEST_F(FirstValues, CanBeLookedAtWithoutACopy) {
  Session session(graph);
  int large = 0;
  session.prepare({reduce_sum(w)});
  const Tensor read = session.read(w);
  set_allocation_hook([&](const std::string&, std::size_t bytes) { large += bytes >= 4 * kLarge; });
  session.look_at(w, [&](std::span<const std::byte> bytes) {
    EXPECT_TRUE(std::ranges::equal(bytes, std::span(read.raw(), read.bytes())));
  });
  EXPECT_EQ(large, 0);
}

}  // namespace session_variables_test
}  // namespace belfry
