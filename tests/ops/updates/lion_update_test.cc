#include "belfry/ops/updates/lion_update.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace lion_update_test {

UpdateBuilder with(LionUpdateOptions options) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return lion_update(v[0], v[1], x[0], x[1], options);
  };
}

Tensor three(double a, double b, double c) { return Tensor({3}, std::vector<double>{a, b, c}); }

TEST(LionUpdate, MovesByTheRateAgainstTheSignOfTheInterpolatedGradient) {
  // 0.75 * m + 0.25 * g = 0.5, -1 and 0; m becomes 0.5 * m + 0.5 * g.
  const std::vector<Tensor> after =
      update(with({.beta1 = 0.75, .beta2 = 0.5}), {three(2, 2, 2), three(1, -2, 1)},
             {three(-1, 2, -3), Tensor(0.25)});
  EXPECT_EQ(doubles(after[0]), (std::vector<double>{1.75, 2.25, 2}));
  EXPECT_EQ(doubles(after[1]), (std::vector<double>{0, 0, -1}));
}

TEST(LionUpdate, ShrinksTheVariableOrAddsToTheGradient) {
  const auto after = [](LionUpdateOptions options) {
    return update(with(options), {three(4, 4, -4), three(0, 0, 0)},
                  {three(-1, 0, 1), Tensor(0.25)});
  };
  // 4 is kept by 1 - 0.25 * 0.5, and m is a half of the gradient.
  std::vector<Tensor> is = after({.beta1 = 0.75, .beta2 = 0.5, .weight_decay = 0.5});
  EXPECT_EQ(doubles(is[0]), (std::vector<double>{3.75, 3.5, -3.75}));
  EXPECT_EQ(doubles(is[1]), (std::vector<double>{-0.5, 0, 0.5}));
  // The gradient is that and 0.5 * x: 1, 2 and -1.
  is = after({.beta1 = 0.75, .beta2 = 0.5, .coupled_decay = 0.5});
  EXPECT_EQ(doubles(is[0]), (std::vector<double>{3.75, 3.75, -3.75}));
  EXPECT_EQ(doubles(is[1]), (std::vector<double>{0.5, 1, -0.5}));
}

TEST(LionUpdate, KeepsItsContract) {
  for (const double decay : {0.0, 0.1})
    for (const double coupled : {0.0, 0.2})
      check_update(with({.weight_decay = decay, .coupled_decay = coupled}),
                   {random_values({7, 9}), random_values({7, 9}, -1, 1, 3)},
                   {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(LionUpdate, RefusesOptionsThatCannotBe) {
  const std::pair<LionUpdateOptions, const char*> refused[] = {
      {{.beta1 = 1}, "the betas must be in [0, 1), not 1"},
      {{.beta2 = -0.5}, "the betas must be in [0, 1), not -0.5"},
      {{.weight_decay = -1}, "the weight decay must be a finite number >= 0, not -1"},
      {{.coupled_decay = -1}, "the weight decay must be a finite number >= 0, not -1"}};
  for (const auto& [options, message] : refused)
    expect_update_refused(with(options), {random_values({4}), random_values({4})},
                          {random_values({4}), Tensor(0.1f)}, message);
}

}  // namespace lion_update_test
}  // namespace belfry
