#include "belfry/ops/clip.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace clip_test {

Output by_limit(Inputs x) { return clip(x[0], x[1]); }

TEST(Clip, CutsElementsOffAtTheLimits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor x({6}, std::vector<double>{1, -2, 6, -6, kInfinity, -kInfinity});
  const Tensor limit({}, std::vector<double>{2});
  EXPECT_EQ(doubles(compute(by_limit, {x, limit})), (std::vector<double>{1, -2, 2, -2, 2, -2}));
}

TEST(Clip, KeepsItsContract) {
  for (const double limit : {0.0, 0.5}) {
    const Builder fixed = [&](Inputs x) {
      return clip(x[0], constant(x[0].graph(), limit, x[0].dtype()));
    };
    check_op({.build = fixed, .inputs = {random_values({5, 37}, -1, 1)}, .gradient = -1});
  }
}

TEST(Clip, RefusesALimitThatIsNoScalarOfTheSameType) {
  expect_refused(by_limit, {{{4}}, {{1}}}, "Clip");
  expect_refused(by_limit, {{{4}}, {{}, DType::kF64}}, "cast");
  expect_refused(by_limit, {{{4}, DType::kF16}, {{}, DType::kF16}}, "cast it");
}

}  // namespace clip_test
}  // namespace belfry
