#include "belfry/tests/support/grad_check.h"

#include <gtest/gtest.h>

#include "belfry/ops/operand.h"
#include "belfry/ops/square.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace grad_check_test {

std::vector<Tensor> inputs() {
  return {to(random_values({3, 2}, 1, 2, 1), DType::kF64),
          to(random_values({3, 2}, 1, 2, 2), DType::kF64)};
}

TEST(GradientCheck, AcceptsARightGradient) {
  const Builder build = [](Inputs x) { return square(x[0]) * x[1]; };
  EXPECT_LT(gradient_error(build, inputs()).largest, 1e-8);
}

// x^2 whose gradient is x: half of the right one.
TEST(GradientCheck, FindsAWrongGradientAndSaysWhere) {
  const Builder build = [](Inputs x) { return x[0] + x[1] * stop_gradient(x[1]); };
  const GradientError error = gradient_error(build, inputs());
  EXPECT_GT(error.largest, 0.3);
  EXPECT_NE(error.where.find("output 0, input 1, element"), std::string::npos) << error.where;
}

TEST(GradientCheck, FindsAMissingGradient) {
  const Builder build = [](Inputs x) { return x[0] + stop_gradient(x[1]); };
  EXPECT_GT(gradient_error(build, inputs()).largest, 1e-2);
}

TEST(GradientCheck, LooksAtEveryOutput) {
  const Builder build = [](Inputs x) {
    return std::vector<Output>{x[0] + x[1], x[0] * stop_gradient(x[0])};
  };
  EXPECT_EQ(gradient_error(build, inputs()).where.substr(0, 17), "output 1, input 0");
}

// A wrong gradient of 1 % in one place must not hide behind the sum over others.
TEST(GradientCheck, FindsASmallErrorInOneInput) {
  const Builder build = [](Inputs x) { return x[0] * 1.01 - 0.01 * stop_gradient(x[0]) + x[1]; };
  const GradientError error = gradient_error(build, inputs());
  EXPECT_GT(error.largest, 1e-3);
  EXPECT_LT(error.largest, 0.02);
}

}  // namespace grad_check_test
}  // namespace belfry
