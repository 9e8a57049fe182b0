#include "belfry/ops/losses/regression.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace regression_test {

constexpr LossReduction kNone = LossReduction::kNone;

Tensor predictions() { return Tensor({2, 3}, std::vector<double>{0.5, -1, 2, 0.25, 3, -0.75}); }
Tensor targets() { return Tensor({2, 3}, std::vector<double>{0, 1, 0.5, 0.25, 0.75, -2}); }

double value(const Builder& build) {
  return compute(build, {predictions(), targets()}).item<double>();
}

// Values of torch.nn.functional.
TEST(Regression, LossesHaveTheValuesOfPyTorch) {
  EXPECT_NEAR(value([](Inputs x) { return mse_loss(x[0], x[1]); }), 2.1875, 1e-14);
  EXPECT_NEAR(value([](Inputs x) { return l1_loss(x[0], x[1]); }), 1.25, 1e-14);
  EXPECT_NEAR(value([](Inputs x) { return huber_loss(x[0], x[1], {.delta = 0.7}); }),
              0.6741666666666667, 1e-14);
  EXPECT_NEAR(value([](Inputs x) { return smooth_l1_loss(x[0], x[1], {.beta = 0.7}); }),
              0.9630952380952381, 1e-14);
  EXPECT_NEAR(value([](Inputs x) { return smooth_l1_loss(x[0], x[1], {.beta = 0}); }), 1.25, 1e-14);
}

TEST(Regression, LossesReduceAsAsked) {
  const auto losses = [](LossReduction reduction) {
    return doubles(compute([=](Inputs x) { return mse_loss(x[0], x[1], {.reduction = reduction}); },
                           {predictions(), targets()}));
  };
  EXPECT_EQ(losses(kNone), (std::vector<double>{0.25, 4, 2.25, 0, 5.0625, 1.5625}));
  EXPECT_EQ(losses(LossReduction::kBatchMean), (std::vector<double>{6.5625}));
}

TEST(Regression, HuberIsQuadraticUpToDelta) {
  const Tensor x({5}, std::vector<double>{-3, -2, 1, 2, 1e6}), zero(Shape{5}, DType::kF64);
  const Builder build = [](Inputs in) {
    return huber_loss(in[0], in[1], {.delta = 2, .reduction = kNone});
  };
  EXPECT_EQ(doubles(compute(build, {x, zero})), (std::vector<double>{4, 2, 0.5, 2, 2e6 - 2}));
  const Builder gradient = [&](Inputs in) { return gradients(build(in)[0], {in[0]})[0]; };
  EXPECT_EQ(doubles(compute(gradient, {x, zero})), (std::vector<double>{-2, -2, 1, 2, 2}));
}

TEST(Regression, LossesKeepTheirContract) {
  const std::vector<Tensor> inputs{random_values({5, 7}), random_values({5, 7}, -2, 2, 2)};
  check_op({.build = [](Inputs x) { return mse_loss(x[0], x[1]); }, .inputs = inputs});
  check_op({.build = [](Inputs x) { return l1_loss(x[0], x[1], {.reduction = kNone}); },
            .inputs = inputs});
  check_op({.build = [](Inputs x) { return huber_loss(x[0], x[1]); }, .inputs = inputs});
  check_op({.build = [](Inputs x) { return smooth_l1_loss(x[0], x[1], {.beta = 0.5}); },
            .inputs = inputs});
}

// [n,1] and [n] would be compared as [n,n].
TEST(Regression, LossesDoNotBroadcast) {
  const std::vector<TensorType> types{{{8, 1}}, {{8}}};
  expect_refused([](Inputs x) { return mse_loss(x[0], x[1]); }, types,
                 "predictions have shape [8,1] and targets [8], but need one shape; "
                 "reshape(targets, [8,1])");
  expect_refused([](Inputs x) { return l1_loss(x[0], x[1]); }, types,
                 "l1_loss (built at regression_test.cc:");
  expect_refused([](Inputs x) { return huber_loss(x[0], x[1]); }, types, "huber_loss (built at");
  expect_refused([](Inputs x) { return smooth_l1_loss(x[0], x[1]); }, types,
                 "smooth_l1_loss (built at");
  const std::int64_t any = kUnknownSize;
  expect_refused([](Inputs x) { return mse_loss(x[0], x[1]); }, {{{any, 1}}, {{any}}},
                 "but need one shape");
  expect_refused([](Inputs x) { return mse_loss(x[0], x[1]); },
                 {{{8}, DType::kF32}, {{8}, DType::kI32}},
                 "predictions are f32 and targets i32; cast the targets");
}

// In mixed precision a layer gives bf16, and targets are fed as f32.
TEST(Regression, LossesTakePredictionsOfShortTypes) {
  const Tensor p({2}, std::vector{1.f, 3.f}), t({2}, std::vector{0.f, 1.f});
  const Builder loss = [](Inputs x) { return mse_loss(cast(x[0], DType::kBF16), x[1]); };
  EXPECT_EQ(compute(loss, {p, t}), Tensor({}, std::vector{2.5f}));
}

TEST(Regression, RefusesLimitsThatAreNot) {
  const std::vector<TensorType> types{{{8}}, {{8}}};
  expect_refused([](Inputs x) { return huber_loss(x[0], x[1], {.delta = 0}); }, types,
                 "delta must be positive, not 0");
  expect_refused([](Inputs x) { return smooth_l1_loss(x[0], x[1], {.beta = -1}); }, types,
                 "beta must not be negative, but is -1");
}

}  // namespace regression_test
}  // namespace belfry
