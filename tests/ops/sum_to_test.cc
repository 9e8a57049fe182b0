#include "belfry/ops/sum_to.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sum_to_test {

// The op itself: the builder avoids it for shapes that are known.
Output summed(Inputs x) { return x[0].graph().add(kSumTo, {x[0], x[1]}).output(); }

TEST(SumTo, AddsWhatWasRepeated) {
  const Tensor x({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(compute(summed, {x, Tensor({3}, DType::kF32)}),
            Tensor({3}, std::vector<float>{5, 7, 9}));
  EXPECT_EQ(compute(summed, {x, Tensor({2, 1}, DType::kF32)}),
            Tensor({2, 1}, std::vector<float>{6, 15}));
  EXPECT_EQ(compute(summed, {x, Tensor({2, 3}, DType::kF32)}), x);
  EXPECT_EQ(compute(summed, {x, Tensor({}, DType::kF32)}), Tensor(21.f));
}

TEST(SumTo, KeepsItsContract) {
  for (const Shape& like :
       {Shape{}, Shape{5}, Shape{3, 1}, Shape{4, 1, 5}, Shape{1, 3, 1}, Shape{4, 3, 5}})
    check_op(
        {.build = summed, .inputs = {random_values({4, 3, 5}), random_values(like)}, .nan = false});
}

TEST(SumTo, CostsNothingWhereNothingWasRepeated) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  EXPECT_EQ(sum_to(x, x, {3}), x);
  EXPECT_EQ(sum_to(x, x, {1, 1}), x);
  EXPECT_STREQ(sum_to(x, x, {kUnknownSize, 3}).node().op().name, "SumTo");
}

TEST(SumTo, RefusesShapesOfNoBroadcast) {
  expect_refused(summed, {{{2, 3}}, {{2, 2}}}, "do not fit");
  expect_refused(summed, {{{1, 3}}, {{2, 3}}}, "[1,3] is no result of broadcasting [2,3]");
}

}  // namespace sum_to_test
}  // namespace belfry
