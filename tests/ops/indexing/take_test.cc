#include "belfry/ops/indexing/take.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace take_test {

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }
Tensor ids(Shape shape, std::vector<std::int64_t> values) { return {std::move(shape), values}; }

Builder taken(int axis) {
  return [axis](Inputs x) { return take(x[0], x[1], axis); };
}
Builder taken_along(int axis) {
  return [axis](Inputs x) { return take_along_axis(x[0], x[1], axis); };
}
Output taken_nd(Inputs x) { return gather_nd(x[0], x[1]); }
Builder scattered(GatherOptions options = {}) {
  return [options](Inputs x) { return scatter_add(x[0], x[1], x[2], options); };
}

void expect_run_refused(const Builder& build, const std::vector<Tensor>& inputs,
                        const std::string& message) {
  try {
    compute(build, inputs);
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

const Tensor& digits() {
  static const Tensor tensor = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  return tensor;
}

TEST(Take, TakesColumnsAsNumPy) {
  EXPECT_EQ(compute(taken(1), {digits(), ids({2}, {2, 0})}), floats({2, 2}, {3, 1, 6, 4}));
  EXPECT_EQ(compute(taken(-2), {digits(), ids({}, {1})}), floats({3}, {4, 5, 6}));
}

// As np.take_along_axis.
TEST(TakeAlongAxis, TakesOtherPlacesOfEachLine) {
  EXPECT_EQ(compute(taken_along(1), {digits(), ids({2, 2}, {2, 0, 1, 1})}),
            floats({2, 2}, {3, 1, 5, 5}));
  EXPECT_EQ(compute(taken_along(0), {digits(), ids({1, 3}, {1, 0, 1})}), floats({1, 3}, {4, 2, 6}));
}

TEST(TakeAlongAxis, KeepsItsContract) {
  check_op({.build = taken_along(-1),
            .inputs = {random_values({3, 4}), ids({3, 2}, {0, 3, 3, 3, 1, 2})}});
  check_op({.build = taken_along(0),
            .inputs = {random_values({4, 3}), ids({2, 3}, {0, 3, 3, 3, 1, 2})}});
  check_op({.build = taken_along(1),
            .inputs = {random_values({2, 3, 2}), ids({2, 2, 2}, {0, 2, 2, 1, 1, 1, 0, 2})}});
  check_op({.build = taken_along(0), .inputs = {random_values({5}), ids({2}, {4, 1})}});
}

TEST(TakeAlongAxis, RefusesOtherRanks) {
  const TensorType of_ids{{3}, DType::kI64};
  expect_refused(taken_along(0), {{{2, 3}}, of_ids},
                 "needs x and ids of one rank, and an axis of them, not [2,3], [3] and axis 0");
  expect_refused(taken_along(2), {{{3}}, of_ids}, "and axis 2");
  expect_run_refused(taken_along(1), {digits(), ids({2, 1}, {0, 3})}, "id 3 is not in [0, 3)");
}

TEST(GatherNd, TakesElementsAndRows) {
  EXPECT_EQ(compute(taken_nd, {digits(), ids({3, 2}, {0, 2, 1, 0, 0, 2})}), floats({3}, {3, 4, 3}));
  EXPECT_EQ(compute(taken_nd, {digits(), ids({2, 1}, {1, 0})}), floats({2, 3}, {4, 5, 6, 1, 2, 3}));
}

TEST(FlatIndex, NumbersElements) {
  const Builder build = [](Inputs x) { return x[0].graph().add(kFlatIndex, x).output(); };
  EXPECT_EQ(compute(build, {digits(), ids({3, 2}, {0, 2, 1, 0, 1, 2})}), ids({3}, {2, 3, 5}));
  check_op({.build =
                [&](Inputs x) {
                  return build(std::vector{x[1], x[0]});
                },
            .inputs = {ids({4, 2}, {0, 2, 1, 0, 1, 2, 1, 1}), random_values({2, 3})},
            .gradient = -1,
            .nan = false});
}

TEST(GatherNd, KeepsItsContract) {
  check_op({.build = taken_nd,
            .inputs = {random_values({3, 2, 4}), ids({2, 2, 2}, {0, 1, 2, 0, 0, 1, 1, 1})}});
}

TEST(GatherNd, RefusesIdsOutsideX) {
  const TensorType of_x{{2, 3}};
  expect_refused(taken_nd, {of_x, {{4, 3}, DType::kI64}},
                 "ids [4,3] index 3 dimensions, but x is [2,3]");
  expect_refused(taken_nd, {of_x, {{4, kUnknownSize}, DType::kI64}}, "must be known");
  expect_refused(taken_nd, {of_x, {{4, 2}}}, "the ids are f32, but must be i32 or i64");
  expect_run_refused(taken_nd, {digits(), ids({2, 2}, {0, 2, 0, 3})},
                     "id 3 of dimension 1 is not in [0, 3)");
  expect_run_refused(taken_nd, {digits(), ids({1, 2}, {-1, 2})}, "id -1 of dimension 0 is not in");
  const std::vector<std::int64_t> ones(17, 1);
  expect_run_refused(
      taken_nd, {Tensor(Shape(ones), DType::kF32), ids({1, 17}, std::vector<std::int64_t>(17, 0))},
      "ids index at most 16 dimensions");
}

// As np.add.at and tf.tensor_scatter_nd_add.
TEST(ScatterAdd, AddsRowsOfOneIdInOrder) {
  EXPECT_EQ(compute(scattered(), {digits(), ids({3}, {1, 0, 1}),
                                  floats({3, 3}, {10, 20, 30, 1, 1, 1, 100, 200, 300})}),
            floats({2, 3}, {2, 3, 4, 114, 225, 336}));
  const Tensor counts({3}, std::vector<std::int32_t>{5, 0, 0});
  EXPECT_EQ(compute(scattered(),
                    {counts, ids({3}, {2, 0, 2}), Tensor({3}, std::vector<std::int32_t>{1, 1, 1})}),
            Tensor({3}, std::vector<std::int32_t>{6, 0, 2}));
}

// As torch.scatter_add along the last axis.
TEST(ScatterAdd, AddsElementsOfLines) {
  EXPECT_EQ(compute(scattered({.axis = 1, .batch_dims = 1}),
                    {digits(), ids({2, 2}, {2, 2, 0, 1}), floats({2, 2}, {10, 20, 30, 40})}),
            floats({2, 3}, {1, 2, 33, 34, 45, 6}));
}

TEST(ScatterAdd, KeepsItsContract) {
  check_op({.build = scattered(),
            .inputs = {random_values({3, 4}), ids({5}, {2, 0, 2, 2, 0}),
                       random_values({5, 4}, -1, 1, 2)}});
  check_op({.build = scattered({.axis = 1}),
            .inputs = {random_values({3, 4}), ids({2}, {3, 3}), random_values({3, 2}, -1, 1, 2)}});
  check_op({.build = scattered({.axis = 1, .batch_dims = 1}),
            .inputs = {random_values({3, 4, 2}), ids({3, 2}, {3, 3, 0, 1, 2, 2}),
                       random_values({3, 2, 2}, -1, 1, 2)}});
}

TEST(ScatterAdd, RefusesUpdatesOfOtherShapesAndTypes) {
  const TensorType of_ids{{2}, DType::kI64};
  expect_refused(scattered(), {{{3, 4}}, of_ids, {{2, 5}}},
                 "what is added to rows is f32[2,5], but they are f32[2,4]");
  expect_refused(scattered(), {{{3}, DType::kBool}, of_ids, {{2}, DType::kBool}},
                 "no arithmetic on bool; cast it");
}

TEST(GatherNd, LeavesOtherDimensionsUnknown) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, kUnknownSize, 3});
  const Output places = placeholder(graph, "places", DType::kI64, {4, 1});
  EXPECT_EQ(gather_nd(x, places).shape(), (Shape{4, kUnknownSize, 3}));
}

}  // namespace take_test
}  // namespace belfry
