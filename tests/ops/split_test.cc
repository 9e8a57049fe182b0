#include "belfry/ops/split.h"

#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/concat.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace split_test {

Builder into(int parts, int axis) {
  return [=](Inputs x) { return split(x[0], parts, axis); };
}

Builder by(std::vector<std::int64_t> sizes, int axis) {
  return [=](Inputs x) { return split(x[0], sizes, axis); };
}

std::vector<Shape> shapes_of(const std::vector<Output>& parts) {
  std::vector<Shape> shapes;
  for (const Output& part : parts) shapes.push_back(part.shape());
  return shapes;
}

TEST(Split, MakesEqualParts) {
  Graph graph;
  const auto parts = split(constant(graph, {1, 2, 3, 4, 5, 6}, {2, 3}), 3, -1);
  ASSERT_EQ(parts.size(), 3);
  EXPECT_EQ(evaluate(parts[2]), Tensor({2, 1}, std::vector<float>{3, 6}));
}

TEST(Split, KeepsItsContract) {
  for (const int axis : {0, 1, 2})
    check_op({.build = into(2, axis), .inputs = {random_values({4, 2, 6})}});
}

// Its gradient is a concat.
TEST(Split, IsComputedByTheShardsOfABatchButAlongIt) {
  for (const int axis : {0, 1}) {
    Graph graph;
    const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 8});
    const std::vector<Output> parts = split(x, 2, axis);
    const Output dx = gradients(mul(parts[0], parts[0]), {x})[0];
    Session session(graph, {.shards_per_device = 4, .threads = 1});
    const CompiledStep& step = session.prepare({parts[0], parts[1], dx}, {FeedType{x, {8, 8}, 0}});
    std::map<const Op*, int> runs;
    for (const PlanNode& node : step.plan()->nodes) runs[node.op] = step.plan()->runs(node);
    for (const Op* op : {&kSplit, &kConcat}) EXPECT_EQ(runs.at(op), axis == 0 ? 1 : 4) << op->name;
  }
}

// TensorFlow 1.15.5: tf.split(tf.ones([10, 4]), [3, 4, 3], 0) has the shapes [[3, 4], [4, 4],
// [3, 4]], and so has [3, -1, 3]; [3, 7, -1] and [3, 7, 0] give [[3, 4], [7, 4], [0, 4]].
TEST(Split, MakesPartsOfTheSizesThatAreGiven) {
  Graph graph;
  const Output x = constant(graph, random_values({10, 4}));
  for (const std::int64_t middle : {4, -1})
    EXPECT_EQ(shapes_of(split(x, {3, middle, 3}, 0)), (std::vector<Shape>{{3, 4}, {4, 4}, {3, 4}}));
  for (const std::int64_t last : {0, -1})
    EXPECT_EQ(shapes_of(split(x, {3, 7, last}, -2)), (std::vector<Shape>{{3, 4}, {7, 4}, {0, 4}}));
  for (const std::int64_t all : {10, -1})
    EXPECT_EQ(shapes_of(split(x, {all}, 0)), (std::vector<Shape>{{10, 4}}));
  const auto parts = split(constant(graph, {1, 2, 3, 4, 5, 6}, {2, 3}), {1, 2}, 1);
  EXPECT_EQ(evaluate(parts[0]), Tensor({2, 1}, std::vector<float>{1, 4}));
  EXPECT_EQ(evaluate(parts[1]), Tensor({2, 2}, std::vector<float>{2, 3, 5, 6}));
}

TEST(Split, OfSizesKeepsItsContract) {
  check_op({.build = by({3, 4, 3}, 0), .inputs = {random_values({10, 4})}});
  check_op({.build = by({1, -1, 2}, 1), .inputs = {random_values({3, 9, 2})}});
  check_op({.build = by({5, 1}, -1), .inputs = {random_values({2, 3, 6})}});
  check_op({.build = by({0, 7, 0, 2}, 0), .inputs = {random_values({9, 2})}, .nan = false});
  check_op({.build = by({4}, 0), .inputs = {random_values({4})}});
}

// TensorFlow 1.15.5 prints [0., 4., 6., 0., 0., 0.] for the second of [1, 2, 3], squared.
TEST(Split, OfSizesHasTheGradientOfEachPartInItsPlace) {
  Graph graph;
  const Output x = constant(graph, {1, 2, 3, 4, 5, 6}, {6});
  const Output second = split(x, {1, 2, 3}, 0)[1];
  EXPECT_EQ(evaluate(gradients(mul(second, second), {x})[0]),
            Tensor({6}, std::vector<float>{0, 4, 6, 0, 0, 0}));
}

TEST(Split, LeavesAnUnknownDimensionToTheSizeThatIsOpen) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 4});
  EXPECT_EQ(shapes_of(split(x, {3, -1}, 0)), (std::vector<Shape>{{3, 4}, {kUnknownSize, 4}}));
  const std::vector<Output> named = split(x, {3, 4}, 0);
  EXPECT_EQ(shapes_of(named), (std::vector<Shape>{{3, 4}, {4, 4}}));
  const std::vector<FeedValue> eight{{x, random_values({8, 4})}};
  EXPECT_THROW(evaluate(named, eight), InvalidArgument);
  EXPECT_EQ(evaluate(split(x, {3, -1}, 0), eight)[1].shape(), (Shape{5, 4}));
}

// TensorFlow 1.15.5: "can't split axis of size 10 into pieces of size [3,4,4]", "size_splits can
// only have one -1", "Dimension -2 must be >= 0".
TEST(Split, RefusesSizesThatDoNotFit) {
  const std::vector<TensorType> ten{{{10, 4}}};
  expect_refused(by({3, 4, 4}, 0), ten,
                 "the sizes 3, 4, 4 add up to 11, but dimension 0 of [10,4] is 10");
  expect_refused(by({3, 4}, 0), ten, "add up to 7");
  expect_refused(by({3, 8, -1}, 0), ten, "add up to 11");
  expect_refused(by({-1, -1, 3}, 0), ten, "only one of the sizes -1, -1, 3 can be -1");
  expect_refused(by({3, -2, 9}, 0), ten, "size -2 is negative");
  expect_refused(by({}, 0), ten, "split (split_test.cc:");
  expect_refused(by({4}, 2), ten, "axis 2");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_refused(by({most, most, 12}, 0), ten, "more than a tensor can have");
}

TEST(Split, APartWithoutGradientCountsAsZeros) {
  Graph graph;
  const Output x = constant(graph, {1, 2, 3, 4}, {4});
  const Output dx = gradients(split(x, 2, 0)[1], {x})[0];
  EXPECT_EQ(evaluate(dx), Tensor({4}, std::vector<float>{0, 0, 1, 1}));
}

TEST(Split, RefusesPartsThatAreNotEqual) {
  expect_refused(into(2, 0), {{{3, 4}}}, "dimension 0 of [3,4] has no 2 equal parts");
  expect_refused(into(0, 0), {{{3, 4}}}, "cannot make 0 parts");
}

}  // namespace split_test
}  // namespace belfry
