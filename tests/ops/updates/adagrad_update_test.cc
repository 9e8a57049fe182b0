#include "belfry/ops/updates/adagrad_update.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace adagrad_update_test {

UpdateBuilder with(AdagradUpdateOptions options) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return adagrad_update(v[0], v[1], x[0], x[1], options);
  };
}

Tensor one(double value) { return Tensor({1}, std::vector<double>{value}); }

TEST(AdagradUpdate, DividesByTheRootOfTheSumOfSquares) {
  // The sum is 9 + 4^2 = 25.
  const std::vector<Tensor> after =
      update(with({.epsilon = 3}), {one(2), one(9)}, {one(4), Tensor(0.5)});
  EXPECT_EQ(after[1].item<double>(), 25);
  EXPECT_EQ(after[0].item<double>(), 2 - 0.5 * 4 / 8);
}

TEST(AdagradUpdate, AddsWeightDecayToTheGradientOrShrinksTheVariable) {
  // g = 4 + 0.5 * 8 = 8.
  std::vector<Tensor> after =
      update(with({.epsilon = 0, .weight_decay = 0.5}), {one(8), one(0)}, {one(4), Tensor(0.25)});
  EXPECT_EQ(after[1].item<double>(), 64);
  EXPECT_EQ(after[0].item<double>(), 7.75);
  after = update(with({.epsilon = 0, .decoupled_decay = 0.5}), {one(8), one(0)},
                 {one(4), Tensor(0.25)});
  EXPECT_EQ(after[1].item<double>(), 16);
  EXPECT_EQ(after[0].item<double>(), 8 * 0.875 - 0.25);
}

TEST(AdagradUpdate, KeepsItsContract) {
  for (const double decay : {0.0, 0.1})
    for (const double decoupled : {0.0, 0.2})
      check_update(with({.weight_decay = decay, .decoupled_decay = decoupled}),
                   {random_values({7, 9}), random_values({7, 9}, 0.1, 1, 3)},
                   {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(AdagradUpdate, RefusesOptionsThatCannotBe) {
  const std::pair<AdagradUpdateOptions, const char*> refused[] = {
      {{.epsilon = -1}, "epsilon must not be negative, but is -1"},
      {{.weight_decay = -1}, "the weight decay must be a finite number >= 0, not -1"},
      {{.decoupled_decay = -1}, "the weight decay must be a finite number >= 0, not -1"}};
  for (const auto& [options, message] : refused)
    expect_update_refused(with(options), {random_values({4}), random_values({4})},
                          {random_values({4}), Tensor(0.1f)}, message);
}

}  // namespace adagrad_update_test
}  // namespace belfry
