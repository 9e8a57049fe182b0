#include "belfry/ops/pointwise/sign.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sign_test {

Output size_of_x(Inputs x) { return abs(x[0]); }
Output sign_of_x(Inputs x) { return sign(x[0]); }
Output slope(Inputs x) { return gradients(abs(x[0]), {x[0]})[0]; }

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Tensor kNumbers({5}, std::vector<double>{-kInfinity, -2.5, 0, 1e-300, 7});

TEST(Abs, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(size_of_x, {kNumbers})),
            (std::vector<double>{kInfinity, 2.5, 0, 1e-300, 7}));
  EXPECT_FALSE(std::signbit(compute(size_of_x, {Tensor(-0.0)}).item<double>()));
}

TEST(Sign, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(sign_of_x, {kNumbers})), (std::vector<double>{-1, -1, 0, 1, 1}));
}

TEST(Abs, HasNoSlopeAtZero) {
  EXPECT_EQ(doubles(compute(slope, {kNumbers})), (std::vector<double>{-1, -1, 0, 1, 1}));
}

TEST(Abs, TakesIntegersAndKeepsTheSmallest) {
  constexpr int kLeast = std::numeric_limits<std::int32_t>::min();
  const Tensor x({4}, std::vector<std::int32_t>{-3, 0, 4, kLeast});
  EXPECT_EQ(compute(size_of_x, {x}), Tensor({4}, std::vector<std::int32_t>{3, 0, 4, kLeast}));
  EXPECT_EQ(compute(sign_of_x, {x}), Tensor({4}, std::vector<std::int32_t>{-1, 0, 1, -1}));
  const Tensor wide({2}, std::vector<std::int64_t>{-(1LL << 40), 5});
  EXPECT_EQ(compute(size_of_x, {wide}), Tensor({2}, std::vector<std::int64_t>{1LL << 40, 5}));
}

TEST(Abs, KeepsItsContract) {
  check_op({.build = size_of_x, .inputs = {random_values({5, 7})}});
  check_op({.build = sign_of_x, .inputs = {random_values({5, 7})}});
}

TEST(Abs, RefusesTypesWithoutArithmetic) {
  expect_refused(size_of_x, {{{2}, DType::kU8}}, "no arithmetic on u8; cast it");
  expect_refused(sign_of_x, {{{2}, DType::kBool}}, "no arithmetic on bool; cast it");
}

// Nothing flows back through a sign.
TEST(Sign, HasNoGradient) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  EXPECT_FALSE(gradients(sign(x), {x})[0]);
}

}  // namespace sign_test
}  // namespace belfry
