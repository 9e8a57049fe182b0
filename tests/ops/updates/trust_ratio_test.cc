#include "belfry/ops/updates/trust_ratio.h"

#include <gtest/gtest.h>

#include "belfry/ops/cast.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace trust_ratio_test {

float ratio_of(double variable, double update, float factor = 1) {
  return compute([](Inputs x) { return trust_ratio(x[0], x[1], x[2]); },
                 {Tensor(variable), Tensor(update), Tensor(factor)})
      .item<float>();
}

TEST(TrustRatio, IsTheVariablesNormByThatOfItsUpdate) {
  EXPECT_EQ(ratio_of(3, 2), 1.5f);
  EXPECT_EQ(ratio_of(1e-300, 1e300), 0x1p-126f);  // never 0, which would skip the update
}

TEST(TrustRatio, Is1WhereANormIs0) {
  EXPECT_EQ(ratio_of(0, 2), 1);
  EXPECT_EQ(ratio_of(2, 0), 1);
}

TEST(TrustRatio, Is0WhereTheUpdateIsSkipped) {
  EXPECT_EQ(ratio_of(3, 2, 0), 0);
  EXPECT_EQ(ratio_of(3, 2, 0.25f), 1.5f);
}

TEST(TrustRatio, KeepsItsContract) {
  const auto ratio = [](Inputs x) {
    return trust_ratio(cast(x[0], DType::kF64), cast(x[1], DType::kF64));
  };
  check_op(
      {.build = ratio, .inputs = {Tensor(0.75f), Tensor(2.5f)}, .gradient = -1, .unknown = false});
}

TEST(TrustRatio, RefusesNormsThatAreNoScalars) {
  expect_refused([](Inputs x) { return trust_ratio(x[0], x[1]); },
                 {{{2}, DType::kF64}, {{2}, DType::kF64}}, "a scalar f64 is needed");
}

}  // namespace trust_ratio_test
}  // namespace belfry
