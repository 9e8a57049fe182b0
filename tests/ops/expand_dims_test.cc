#include "belfry/ops/expand_dims.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace expand_dims_test {

TEST(ExpandDims, AddsADimension) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, kUnknownSize});
  EXPECT_EQ(expand_dims(x, 0).shape(), (Shape{1, kUnknownSize, kUnknownSize}));
  EXPECT_EQ(expand_dims(x, 1).shape(), (Shape{kUnknownSize, 1, kUnknownSize}));
  EXPECT_EQ(expand_dims(x, -1).shape(), (Shape{kUnknownSize, kUnknownSize, 1}));
}

TEST(Squeeze, DropsDimensionsOfSizeOne) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {1, 3, 1, 2});
  EXPECT_EQ(squeeze(x).shape(), (Shape{3, 2}));
  EXPECT_EQ(squeeze(x, {-2}).shape(), (Shape{1, 3, 2}));
  EXPECT_EQ(squeeze(x, {2, 0}).shape(), (Shape{3, 2}));
  const Output y = placeholder(graph, "y", DType::kF32, {3});
  EXPECT_EQ(squeeze(y), y);
}

TEST(ExpandDims, KeepsItsContract) {
  const Builder square = [](Inputs x) {
    const Output wide = expand_dims(expand_dims(x[0], 1), -1);
    return squeeze(mul(wide, wide), {1});
  };
  check_op({.build = square, .inputs = {random_values({5, 3})}});
  check_op({.build = [](Inputs x) { return squeeze(expand_dims(x[0], 0)); },
            .inputs = {random_values({5, 3})},
            .unknown = false});
}

TEST(Squeeze, RefusesWhatIsNotThere) {
  expect_refused([](Inputs x) { return expand_dims(x[0], 3); }, {{{2, 3}}},
                 "the result of f32[2,3] has no axis 3");
  expect_refused([](Inputs x) { return squeeze(x[0], {1}); }, {{{2, 3}}},
                 "dimension 1 of [2,3] has size 3, not 1");
  expect_refused([](Inputs x) { return squeeze(x[0], {2}); }, {{{2, 3}}}, "f32[2,3] has no axis 2");
  expect_refused(
      [](Inputs x) {
        return squeeze(x[0], {0, -2});
      },
      {{{1, 1}}}, "an axis is there twice");
  expect_refused([](Inputs x) { return squeeze(x[0]); }, {{{kUnknownSize, 1}}},
                 "the shape of f32[?,1] is not known; name the axes");
}

}  // namespace expand_dims_test
}  // namespace belfry
