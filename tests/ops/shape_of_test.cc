#include "belfry/ops/shape_of.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/run/session.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace shape_of_test {

const Builder kShapeOf = [](Inputs x) { return shape_of(x[0]); };
const Builder kSizeOf = [](Inputs x) { return size_of(x[0]); };
const Builder kRankOf = [](Inputs x) { return rank_of(x[0]); };

Tensor integers(const std::vector<std::int64_t>& values) {
  return Tensor({static_cast<std::int64_t>(values.size())}, values);
}

TEST(ShapeOf, TellsDimensionsElementsAndRank) {
  const Tensor x({2, 3, 4}, DType::kU8);
  EXPECT_EQ(compute(kShapeOf, {x}), integers({2, 3, 4}));
  EXPECT_EQ(compute(kSizeOf, {x}).item<std::int64_t>(), 24);
  EXPECT_EQ(compute(kRankOf, {x}).item<std::int64_t>(), 3);
}

TEST(ShapeOf, ScalarsHaveNoDimensionsAndEmptyTensorsNoElements) {
  EXPECT_EQ(compute(kShapeOf, {Tensor(1.f)}), integers({}));
  EXPECT_EQ(compute(kSizeOf, {Tensor(1.f)}).item<std::int64_t>(), 1);
  EXPECT_EQ(compute(kRankOf, {Tensor(1.f)}).item<std::int64_t>(), 0);
  EXPECT_EQ(compute(kSizeOf, {Tensor({3, 0}, DType::kF32)}).item<std::int64_t>(), 0);
}

TEST(ShapeOf, TellsTheShapeThatIsFed) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 2});
  const Output shape = shape_of(x);
  EXPECT_EQ(shape.shape(), (Shape{2}));
  EXPECT_EQ(shape.dtype(), DType::kI64);
  Session session(graph);
  const FeedValue feed{x, Tensor({5, 2}, DType::kF32)};
  EXPECT_EQ(session.run(shape, {&feed, 1}), integers({5, 2}));
}

TEST(ShapeOf, KeepsItsContract) {
  for (const Builder& build : {kShapeOf, kSizeOf, kRankOf})
    check_op({.build = build, .inputs = {random_values({5, 7})}, .gradient = -1, .nan = false});
}

TEST(ShapeOf, DoesNotDependOnValues) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {3});
  EXPECT_FALSE(gradients(cast(size_of(x), DType::kF32), {x})[0]);
}

TEST(ShapeOf, TakesOneTensor) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {3});
  EXPECT_THROW(graph.add(belfry::kShapeOf, {x, x}), InvalidArgument);
  EXPECT_THROW(graph.add(belfry::kSizeOf, {}), InvalidArgument);
  EXPECT_THROW(shape_of(Output()), InvalidArgument);
}

}  // namespace shape_of_test
}  // namespace belfry
