#include "belfry/ops/transpose.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace transpose_test {

Builder ordered(std::vector<int> order) {
  return [order](Inputs x) { return transpose(x[0], order); };
}

TEST(Transpose, ReversesDimensionsByDefault) {
  EXPECT_EQ(compute(ordered({}), {Tensor({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})}),
            Tensor({3, 2}, std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(Transpose, MovesChannelsLast) {
  const Tensor nchw({1, 2, 1, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(compute(ordered({0, 2, 3, 1}), {nchw}),
            Tensor({1, 1, 3, 2}, std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(Transpose, KeepsItsContractForEveryOrderOfFourDimensions) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    SCOPED_TRACE(join(order));
    check_op({.build = ordered(order), .inputs = {random_values({3, 2, 4, 5})}, .gradient = -1});
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Transpose, KeepsItsContractForLargePlanesVectorsAndScalars) {
  check_op({.build = ordered({}), .inputs = {random_values({37, 41})}, .gradient = -1});
  check_op({.build = ordered({0}), .inputs = {random_values({7})}});
  check_op({.build = ordered({}), .inputs = {random_values({})}});
  check_op({.build = ordered({2, 0, 1}), .inputs = {random_values({2, 3, 4})}});
  check_op({.build = ordered({1, -1, 0}), .inputs = {random_values({2, 3, 4})}});
}

TEST(Transpose, MovesBytes) {
  EXPECT_EQ(compute(ordered({}), {Tensor({2, 2}, std::vector<std::uint8_t>{1, 2, 3, 4})}),
            Tensor({2, 2}, std::vector<std::uint8_t>{1, 3, 2, 4}));
}

TEST(Transpose, RefusesOrdersThatAreNone) {
  expect_refused(ordered({0}), {{{2, 3}}}, "an order of 1 dimensions does not fit [2,3]");
  expect_refused(ordered({1, 1}), {{{2, 3}}}, "axis 1 is given twice");
  expect_refused(ordered({0, 2}), {{{2, 3}}}, "no axis 2 in 2 dimensions");
}

}  // namespace transpose_test
}  // namespace belfry
