#include "belfry/tests/support/interpreter.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace interpreter_test {

TEST(Interpreter, FeedsAndFetches) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize});
  const Output y = x * 2.0;
  const auto values = Interpreter().run({y, x}, {{x, Tensor({2}, std::vector<float>{1, 2})}});
  EXPECT_EQ(values[0], Tensor({2}, std::vector<float>{2, 4}));
  EXPECT_EQ(values[1], Tensor({2}, std::vector<float>{1, 2}));
  EXPECT_THROW(evaluate(y), InvalidArgument);
}

TEST(Interpreter, AnyTensorCanBeFed) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  const Output middle = x * 2.0;
  const FeedValue feed[] = {{middle, Tensor({2}, std::vector<float>{5, 6})}};
  EXPECT_EQ(evaluate(middle + 1.0, feed), Tensor({2}, std::vector<float>{6, 7}));
}

TEST(Interpreter, ReadsSeeTheLastWriteWithAPathToThem) {
  Graph graph;
  const Variable w = variable(graph, "w", {}, {.initializer = init::constant(1)});
  Node& write = assign_add(w, constant(graph, 10));
  Output after;
  {
    ControlDependencies wait(graph, {&write});
    after = w.read();
  }
  Interpreter interpreter;
  const auto values = interpreter.run({Output(w), after, write.output()});
  EXPECT_EQ(values[0].item<float>(), 1);
  EXPECT_EQ(values[1].item<float>(), 11);
  EXPECT_EQ(values[2].item<float>(), 11);
  EXPECT_EQ(interpreter.read(w).item<float>(), 11);
  EXPECT_EQ(interpreter.run({Output(w)})[0].item<float>(), 11);
}

TEST(Interpreter, WritesOfOneRunDoNotRunUnlessFetched) {
  Graph graph;
  const Variable w = variable(graph, "w", {}, {.initializer = init::constant(1)});
  assign_add(w, constant(graph, 10));
  Interpreter interpreter;
  interpreter.write(w, Tensor(5.f));
  EXPECT_EQ(interpreter.run(w).item<float>(), 5);
  EXPECT_EQ(interpreter.read(w).item<float>(), 5);
}

TEST(Interpreter, WhatAKernelLeavesOutIsNan) {
  const Tensor nan = random_values({2});
  EXPECT_EQ(difference(nan, nan), 0);
  Tensor other = nan;
  other.mutable_data<float>()[1] = NAN;
  EXPECT_TRUE(std::isinf(difference(other, nan)));
}

}  // namespace interpreter_test
}  // namespace belfry
