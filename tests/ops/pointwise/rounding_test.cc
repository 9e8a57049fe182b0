#include "belfry/ops/pointwise/rounding.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace rounding_test {

using Rounding = Output (*)(Output, At);

Builder of(Rounding op) {
  return [op](Inputs x) { return op(x[0], {}); };
}

std::vector<double> results(Rounding op, std::vector<double> x) {
  const auto n = static_cast<std::int64_t>(x.size());
  return doubles(compute(of(op), {Tensor({n}, std::move(x))}));
}

TEST(Rounding, HasValuesKnownByHand) {
  const std::vector<double> x{-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4, -2.6, 3};
  EXPECT_EQ(results(floor, x), (std::vector<double>{-3, -2, -1, 0, 1, 2, 2, -3, 3}));
  EXPECT_EQ(results(ceil, x), (std::vector<double>{-2, -1, 0, 1, 2, 3, 3, -2, 3}));
  EXPECT_EQ(results(round, x), (std::vector<double>{-2, -2, 0, 0, 2, 2, 2, -3, 3}));
}

TEST(Rounding, KeepsWhatIsAnIntegerOrInfinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> x{0x1.fffffffffffffp52, -0x1p53, 1e300, -kInfinity, kInfinity};
  for (const Rounding op : {&floor, &ceil, &round}) EXPECT_EQ(results(op, x), x);
}

TEST(Rounding, KeepsItsContract) {
  for (const Rounding op : {&floor, &ceil, &round})
    check_op({.build = of(op), .inputs = {random_values({5, 7}, -20, 20)}});
}

TEST(Rounding, HasNoGradient) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  for (const Rounding op : {&floor, &ceil, &round}) EXPECT_FALSE(gradients(op(x, {}), {x})[0]);
}

TEST(Rounding, RefusesIntegers) {
  expect_refused(of(floor), {{{2}, DType::kI32}}, "Floor");
  expect_refused(of(round), {{{2}, DType::kI64}}, "Round");
}

}  // namespace rounding_test
}  // namespace belfry
