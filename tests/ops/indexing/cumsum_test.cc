#include "belfry/ops/indexing/cumsum.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace cumsum_test {

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }

Builder summed(CumSumOptions options) {
  return [options](Inputs x) { return cumsum(x[0], options); };
}

const Tensor& digits() {
  static const Tensor tensor = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  return tensor;
}

TEST(CumSum, AddsUpRowsAndColumns) {
  EXPECT_EQ(compute(summed({.axis = 1}), {digits()}), floats({2, 3}, {1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(compute(summed({}), {digits()}), floats({2, 3}, {1, 2, 3, 5, 7, 9}));
}

// As tf.cumsum.
TEST(CumSum, LeavesOutTheElementAndGoesBackOnRequest) {
  EXPECT_EQ(compute(summed({.axis = -1, .exclusive = true}), {digits()}),
            floats({2, 3}, {0, 1, 3, 0, 4, 9}));
  EXPECT_EQ(compute(summed({.axis = 1, .reverse = true}), {digits()}),
            floats({2, 3}, {6, 5, 3, 15, 11, 6}));
  EXPECT_EQ(compute(summed({.axis = 1, .exclusive = true, .reverse = true}), {digits()}),
            floats({2, 3}, {5, 3, 0, 11, 6, 0}));
}

TEST(CumSum, TakesIntegers) {
  EXPECT_EQ(compute(summed({}), {Tensor({3}, std::vector<std::int32_t>{-1, 2, -5})}),
            Tensor({3}, std::vector<std::int32_t>{-1, 1, -4}));
}

TEST(CumSum, OfManyElementsIsRoundedOnce) {
  const Tensor y = compute(summed({}), {floats({1 << 16}, std::vector<float>(1 << 16, 0.1f))});
  EXPECT_EQ(y.data<float>().back(), 0.1f * (1 << 16));
}

TEST(CumSum, KeepsItsContract) {
  for (const int axis : {0, 1, 2})
    for (const bool exclusive : {false, true})
      check_op({.build = summed({.axis = axis, .exclusive = exclusive, .reverse = axis == 1}),
                .inputs = {random_values({4, 5, 3})},
                .nan = !exclusive});
  check_op({.build = summed({.axis = 1}), .inputs = {random_values({3, 600, 2})}, .gradient = -1});
  for (const bool exclusive : {false, true})
    check_op({.build = summed({.axis = 0, .exclusive = exclusive}),
              .inputs = {random_values({300, 5, 9})},
              .gradient = -1,
              .nan = !exclusive});
  check_op({.build = summed({.axis = 0, .reverse = true}),
            .inputs = {random_values({600})},
            .gradient = -1});
  for (const bool reverse : {false, true})
    for (const bool exclusive : {false, true})
      check_op({.build = summed({.axis = 1, .exclusive = exclusive, .reverse = reverse}),
                .inputs = {random_values({6, 1300})},
                .gradient = -1,
                .nan = !exclusive});
}

TEST(CumSum, RefusesAxesAndTypes) {
  expect_refused(summed({.axis = 2}), {{{2, 3}}}, "there is no axis 2 in 2 dimensions");
  expect_refused(summed({}), {{{2}, DType::kBool}}, "no arithmetic on bool; cast it");
}

}  // namespace cumsum_test
}  // namespace belfry
