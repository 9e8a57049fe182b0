// check_op() tests what every op must hold. The other tests have values by hand, and a refusal.
#include "swish.h"

#include <gtest/gtest.h>

#include "belfry/op_test.h"
using namespace belfry;

TEST(Swish, KeepsItsContract) {
  check_op({.build = [](Inputs x) { return swish(x[0], {.beta = 1.5}); },
            .inputs = {random_values({5, 7})}});
}

TEST(Swish, IsXTimesSigmoidOfBetaX) {
  const Tensor x({3}, std::vector{-1.f, 0.f, 2.f});
  const std::vector y = doubles(compute([](Inputs in) { return swish(in[0], {.beta = 2}); }, {x}));
  EXPECT_NEAR(y[0], -0.119203, 1e-6);
  EXPECT_EQ(y[1], 0);
  EXPECT_NEAR(y[2], 1.964028, 1e-6);
}

TEST(Swish, RefusesABetaOfZero) {
  expect_refused([](Inputs x) { return swish(x[0], {.beta = 0}); }, {{{2}, DType::kF32}},
                 "beta must be finite and above 0, not 0");
}
