#include "belfry/ops/slice.h"

#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace slice_test {

using Numbers = std::vector<std::int64_t>;

Builder cut(Numbers begin, Numbers size) {
  return [=](Inputs x) { return slice(x[0], begin, size); };
}

const Tensor& digits() {
  static const Tensor tensor({3, 4}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  return tensor;
}

TEST(Slice, TakesABox) {
  const Tensor y = compute(cut({1, 1}, {2, 2}), {digits()});
  EXPECT_EQ(y, Tensor({2, 2}, std::vector<float>{5, 6, 9, 10}));
}

TEST(Slice, SizeMinusOneTakesTheRest) {
  const Tensor y = compute(cut({1, 2}, {-1, -1}), {digits()});
  EXPECT_EQ(y, Tensor({2, 2}, std::vector<float>{6, 7, 10, 11}));
}

TEST(Slice, KeepsItsContract) {
  check_op({.build = cut({1, 1}, {2, 2}), .inputs = {random_values({4, 4})}});
  check_op({.build = cut({1, 0, 2}, {-1, 3, 1}), .inputs = {random_values({4, 3, 5})}});
  check_op({.build = cut({0, 0, 0, 0}, {4, 2, -1, -1}), .inputs = {random_values({4, 3, 2, 2})}});
  check_op({.build = cut({2}, {5}), .inputs = {random_values({9})}});
}

TEST(Slice, CopiesEveryType) {
  const Tensor bytes({3}, std::vector<std::uint8_t>{1, 2, 3});
  EXPECT_EQ(compute(cut({1}, {2}), {bytes}), Tensor({2}, std::vector<std::uint8_t>{2, 3}));
  const Tensor flags({3}, std::vector<bool>{true, false, true});
  EXPECT_EQ(compute(cut({1}, {2}), {flags}), Tensor({2}, std::vector<bool>{false, true}));
}

TEST(Slice, RefusesBoxesThatLeaveTheTensor) {
  expect_refused(cut({1, 1}, {3, 2}), {{{3, 4}}}, "leave dimension 0 of [3,4]");
  expect_refused(cut({1}, {3}), {{{3, 4}}}, "1 and 1 values for [3,4]");
  expect_refused(cut({-1, 0}, {1, 1}), {{{3, 4}}}, "begin -1");
}

Output padded(Inputs x) { return slice_grad(x[0], x[1], {1, 2}, {2, 2}); }

TEST(Slice, IsComputedByTheShardsOfABatchIfItHasAllRows) {
  for (const bool all : {true, false}) {
    Graph graph;
    const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 8});
    const Output y = slice(x, {all ? 0 : 2, 3}, {-1, 4});
    const Output dx = gradients(mul(y, y), {x})[0];
    Session session(graph, {.shards_per_device = 4, .threads = 1});
    CompiledStep& step = session.prepare({y, dx}, {FeedType{x, {8, 8}, 0}});
    std::map<const Op*, int> runs;
    for (const PlanNode& node : step.plan()->nodes) runs[node.op] = step.plan()->runs(node);
    for (const Op* op : {&kSlice, &kSliceGrad}) EXPECT_EQ(runs.at(op), all ? 4 : 1) << op->name;
    const Tensor rows = random_values({8, 8});
    step.run(std::vector{rows});
    for (std::size_t row = 0; row < 8; ++row)
      for (std::size_t column = 0; column < 8; ++column) {
        const bool inside = (all || row >= 2) && column >= 3 && column < 7;
        const float value = rows.data<float>()[8 * row + column];
        EXPECT_EQ(step.fetched(1).data<float>()[8 * row + column], inside ? 2 * value : 0);
      }
  }
}

TEST(SliceGrad, WritesIntoZeros) {
  const Tensor y = compute(padded, {Tensor({2, 2}, std::vector<float>{1, 2, 3, 4}), digits()});
  EXPECT_EQ(y, Tensor({3, 4}, std::vector<float>{0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4}));
}

TEST(SliceGrad, KeepsItsContract) {
  check_op(
      {.build = padded, .inputs = {random_values({2, 2}), random_values({5, 4})}, .nan = false});
}

TEST(SliceGrad, RefusesAGradientOfAnotherShape) {
  expect_refused(padded, {{{2, 3}}, {{5, 4}}}, "the gradient has shape [2,3]");
}

}  // namespace slice_test
}  // namespace belfry
