#include "belfry/ops/updates/rms_prop_update.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace rms_prop_update_test {

UpdateBuilder with(RmsPropUpdateOptions options) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return rms_prop_update(v[0], v[1], v[2], x[0], x[1], options);
  };
}

Tensor one(double value) { return Tensor({1}, std::vector<double>{value}); }

TEST(RmsPropUpdate, DividesByTheRootOfTheMeanSquare) {
  // square = 0.75 * 20 / 3 + 0.25 * 4^2 = 9; sum = 0.5 * 6 + 4 / (3 + 1).
  const std::vector<Tensor> after = update(with({.alpha = 0.75, .epsilon = 1, .momentum = 0.5}),
                                           {one(2), one(20 / 3.0), one(6)}, {one(4), Tensor(0.25)});
  EXPECT_NEAR(after[1].item<double>(), 9, 1e-14);
  EXPECT_NEAR(after[2].item<double>(), 3 + 4 / (3 + 1.0), 1e-14);
  EXPECT_NEAR(after[0].item<double>(), 2 - 0.25 * 4, 1e-14);
}

TEST(RmsPropUpdate, AddsWeightDecayToTheGradient) {
  // g = 4 + 0.5 * 8 = 8; square = 0.25 * 64 = 16; the sum is 8 / 4.
  const std::vector<Tensor> after = update(with({.alpha = 0.75, .epsilon = 0, .weight_decay = 0.5}),
                                           {one(8), one(0), one(100)}, {one(4), Tensor(0.25)});
  EXPECT_EQ(after[1].item<double>(), 16);
  EXPECT_EQ(after[2].item<double>(), 2);
  EXPECT_EQ(after[0].item<double>(), 7.5);
}

TEST(RmsPropUpdate, KeepsItsContract) {
  for (const double decay : {0.0, 0.1})
    check_update(
        with({.momentum = 0.5, .weight_decay = decay}),
        {random_values({7, 9}), random_values({7, 9}, 0.1, 1, 3), random_values({7, 9}, -1, 1, 4)},
        {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(RmsPropUpdate, RefusesOptionsThatCannotBe) {
  const std::pair<RmsPropUpdateOptions, const char*> refused[] = {
      {{.alpha = 1.5}, "alpha must be in [0, 1], not 1.5"},
      {{.epsilon = -1}, "epsilon must not be negative, but is -1"},
      {{.momentum = 1}, "momentum must be in [0, 1), not 1"},
      {{.weight_decay = -1}, "the weight decay must be a finite number >= 0, not -1"}};
  for (const auto& [options, message] : refused)
    expect_update_refused(with(options),
                          {random_values({4}), random_values({4}), random_values({4})},
                          {random_values({4}), Tensor(0.1f)}, message);
}

}  // namespace rms_prop_update_test
}  // namespace belfry
