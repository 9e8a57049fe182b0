#include "belfry/ops/updates/lars_update.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/tests/support/update_check.h"

namespace belfry {
namespace lars_update_test {

UpdateBuilder with(LarsUpdateOptions options, double variable_norm, double gradient_norm) {
  return [=](std::span<const Variable> v, Inputs x) -> Node& {
    Graph& graph = x[0].graph();
    const ScaledGradient gradient = x.size() > 2 ? ScaledGradient{x[0], x[2]} : x[0];
    return lars_update(v[0], v[1], constant(graph, variable_norm, DType::kF64),
                       constant(graph, gradient_norm, DType::kF64), gradient, x[1], options);
  };
}

Tensor two(double a, double b) { return Tensor({2}, std::vector<double>{a, b}); }

// After a step from (3, 4) with the gradient (6, 8) times `factor`, if that is not 1.
std::vector<Tensor> after(LarsUpdateOptions options, double sum = 0, float factor = 1) {
  std::vector<Tensor> inputs{two(6, 8), Tensor(2.0)};
  if (factor != 1) inputs.push_back(Tensor(factor));
  return update(with(options, 5, 10), {two(3, 4), two(sum, sum)}, inputs);
}

TEST(LarsUpdate, ScalesTheGradientByTheRatioOfNorms) {
  // The ratio is 0.5 * 5 / 10.
  std::vector<Tensor> is = after({.momentum = 0.5, .coefficient = 0.5}, 4);
  EXPECT_EQ(doubles(is[1]), (std::vector<double>{3.5, 4}));
  EXPECT_EQ(doubles(is[0]), (std::vector<double>{3 - 7, 4 - 8}));
  is = after({.momentum = 0.5, .coefficient = 0.5, .form = MomentumForm::kNesterov}, 4);
  EXPECT_EQ(doubles(is[0]), (std::vector<double>{3 - 2 * (1.5 + 1.75), 4 - 2 * (2 + 2.0)}));
  // 0.5 * 5 / (10 + 2 * 5 + 5), of 6 + 2 * 3 and 8 + 2 * 4.
  is = after({.momentum = 0, .coefficient = 0.5, .epsilon = 5, .weight_decay = 2});
  EXPECT_NEAR(doubles(is[1])[0], 1.2, 1e-15);
  EXPECT_NEAR(doubles(is[1])[1], 1.6, 1e-15);
}

TEST(LarsUpdate, CountsTheFactorInTheNormOfTheGradient) {
  EXPECT_EQ(after({.coefficient = 0.5}, 4, 0.125f), after({.coefficient = 0.5}, 4));
  EXPECT_NE(after({.coefficient = 0.5, .epsilon = 1}, 4, 0.125f),
            after({.coefficient = 0.5, .epsilon = 1}, 4));
}

TEST(LarsUpdate, HasARatioOfOneWhereANormIs0) {
  for (const auto& [of_x, of_g] : {std::pair{0.0, 10.0}, {5.0, 0.0}}) {
    const std::vector<Tensor> is =
        update(with({}, of_x, of_g), {two(3, 4), two(0, 0)}, {two(6, 8), Tensor(2.0)});
    EXPECT_EQ(doubles(is[1]), (std::vector<double>{6, 8}));
  }
}

TEST(LarsUpdate, KeepsItsContract) {
  for (const double decay : {0.0, 0.1})
    for (const MomentumForm form : {MomentumForm::kPlain, MomentumForm::kNesterov})
      check_update(with({.weight_decay = decay, .form = form}, 3, 2),
                   {random_values({7, 9}), random_values({7, 9}, -1, 1, 3)},
                   {random_values({7, 9}, -1, 1, 2), Tensor(0.1f)});
}

TEST(LarsUpdate, RefusesOptionsThatCannotBe) {
  const std::pair<LarsUpdateOptions, const char*> refused[] = {
      {{.momentum = 1}, "momentum must be in [0, 1), not 1"},
      {{.coefficient = 0}, "the trust coefficient must be a finite number > 0, not 0"},
      {{.epsilon = -1}, "epsilon must not be negative, but is -1"},
      {{.weight_decay = -1}, "the weight decay must be a finite number >= 0, not -1"}};
  for (const auto& [options, message] : refused)
    expect_update_refused(with(options, 1, 1), {random_values({4}), random_values({4})},
                          {random_values({4}), Tensor(0.1f)}, message);
  const UpdateBuilder wrong = [](std::span<const Variable> v, Inputs x) -> Node& {
    return lars_update(v[0], v[1], x[1], x[1], x[0], x[1]);
  };
  expect_update_refused(wrong, {random_values({4}), random_values({4})},
                        {random_values({4}), Tensor(0.1f)},
                        "the norm is f32[], but a scalar f64 is needed");
}

}  // namespace lars_update_test
}  // namespace belfry
