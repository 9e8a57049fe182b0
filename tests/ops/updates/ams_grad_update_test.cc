#include "belfry/ops/updates/ams_grad_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace ams_grad_update_test {

UpdateBuilder with(AmsGradUpdateOptions options) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    return ams_grad_update(v[0], v[1], v[2], v[3], x[2], x[0], x[1], options);
  };
}

Tensor two(double a, double b) { return Tensor({2}, std::vector<double>{a, b}); }
Tensor step(std::int64_t number) { return Tensor(number); }

TEST(AmsGradUpdate, DividesByTheRootOfTheLargestMeanSquare) {
  // At step 1, 1 - beta1 = 0.5 and 1 - beta2 = 0.25. v = 0.75 * v + 0.25 * 16 = 4 and 16, and the
  // largest are 9 and 16: their corrected roots are 6 and 8.
  const std::vector<Tensor> after =
      update(with({.beta1 = 0.5, .beta2 = 0.75, .epsilon = 2}),
             {two(1, 1), two(4, 4), two(0, 16), two(9, 9)}, {two(4, 4), Tensor(0.5), step(1)});
  EXPECT_EQ(doubles(after[1]), (std::vector<double>{4, 4}));
  EXPECT_EQ(doubles(after[2]), (std::vector<double>{4, 16}));
  EXPECT_EQ(doubles(after[3]), (std::vector<double>{9, 16}));
  EXPECT_NEAR(doubles(after[0])[0], 1 - 0.5 / 0.5 * 4 / (6 + 2.0), 1e-14);
  EXPECT_NEAR(doubles(after[0])[1], 1 - 0.5 / 0.5 * 4 / (8 + 2.0), 1e-14);
}

TEST(AmsGradUpdate, AddsWeightDecayToTheGradientOrShrinksTheVariable) {
  const auto after = [](double coupled, double decoupled) {
    return update(with({.beta1 = 0.5,
                        .beta2 = 0.75,
                        .epsilon = 0,
                        .weight_decay = coupled,
                        .decoupled_decay = decoupled}),
                  {two(8, -8), two(0, 0), two(0, 0), two(0, 0)},
                  {two(4, -4), Tensor(0.25), step(1)});
  };
  // g = 4 + 0.5 * 8, and the first step moves by the rate.
  EXPECT_EQ(doubles(after(0.5, 0)[1]), (std::vector<double>{4, -4}));
  EXPECT_NEAR(doubles(after(0.5, 0)[0])[0], 7.75, 1e-14);
  EXPECT_EQ(doubles(after(0, 0.5)[1]), (std::vector<double>{2, -2}));
  EXPECT_NEAR(doubles(after(0, 0.5)[0])[1], -(8 * 0.875 - 0.25), 1e-14);
}

TEST(AmsGradUpdate, KeepsItsContract) {
  for (const double decay : {0.0, 0.1})
    for (const double decoupled : {0.0, 0.2})
      check_update(with({.weight_decay = decay, .decoupled_decay = decoupled}),
                   {random_values({7, 9}), random_values({7, 9}, -1, 1, 3),
                    random_values({7, 9}, 0.1, 1, 4), random_values({7, 9}, 0.1, 1, 5)},
                   {random_values({7, 9}, -1, 1, 2), Tensor(0.1f), step(3)});
}

TEST(AmsGradUpdate, RefusesAStepBelowOne) {
  const std::vector<Tensor> variables(4, random_values({4}));
  try {
    update(with({}), variables, {random_values({4}), Tensor(0.1f), step(0)});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the step is 0, but counts from 1"));
  }
}

TEST(AmsGradUpdate, RefusesOptionsThatCannotBe) {
  const std::pair<AmsGradUpdateOptions, const char*> refused[] = {
      {{.beta1 = 1}, "the betas must be in [0, 1), not 1"},
      {{.beta2 = 1.5}, "the betas must be in [0, 1), not 1.5"},
      {{.epsilon = -1}, "epsilon must not be negative, but is -1"},
      {{.weight_decay = -1}, "the weight decay must be a finite number >= 0, not -1"},
      {{.decoupled_decay = -1}, "the weight decay must be a finite number >= 0, not -1"}};
  for (const auto& [options, message] : refused)
    expect_update_refused(with(options), std::vector<Tensor>(4, random_values({4})),
                          {random_values({4}), Tensor(0.1f), step(1)}, message);
  expect_update_refused(with({}), std::vector<Tensor>(4, random_values({4})),
                        {random_values({4}), Tensor(0.1f), Tensor(1.0f)},
                        "the step is f32[], but a scalar i64 is needed");
}

}  // namespace ams_grad_update_test
}  // namespace belfry
