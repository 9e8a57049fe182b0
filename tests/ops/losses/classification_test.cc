#include "belfry/ops/losses/classification.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/pointwise/log_softmax.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace classification_test {

Tensor logits() { return Tensor({2, 3}, std::vector<double>{0.5, -1, 2, 0.25, 3, -0.75}); }
Tensor zeros_and_ones() { return Tensor({2, 3}, std::vector<double>{0, 1, 1, 1, 0, 1}); }
Tensor soft() { return Tensor({2, 3}, std::vector<double>{.2, .3, .5, 0, 1, 0}); }

double value(const Builder& build, const Tensor& targets) {
  return compute(build, {logits(), targets}).item<double>();
}

TEST(HingeLoss, IsZeroBeyondTheMargin) {
  const Tensor p({4}, std::vector<double>{2, 0.5, -3, 0}), t({4}, std::vector<double>{1, 1, 1, -1});
  EXPECT_EQ(
      doubles(compute(
          [](Inputs x) { return hinge_loss(x[0], x[1], {.reduction = LossReduction::kNone}); },
          {p, t})),
      (std::vector<double>{0, 0.5, 4, 1}));
}

// Values of torch.nn.functional and torchvision.ops.
TEST(ClassificationLosses, HaveTheValuesOfPyTorch) {
  const auto bce = [](std::vector<double> weights) {
    return value(
        [&](Inputs x) {
          return binary_cross_entropy_with_logits(x[0], x[1], {.pos_weight = weights});
        },
        zeros_and_ones());
  };
  EXPECT_NEAR(bce({2, 3, 0.5}), 1.6243712911075237, 1e-14);
  EXPECT_NEAR(bce({4}), 2.7724441389956005, 1e-14);
  EXPECT_NEAR(value([](Inputs x) { return softmax_cross_entropy(x[0], x[1]); }, soft()),
              0.7625713814464696, 1e-14);
  EXPECT_NEAR(value([](Inputs x) { return sigmoid_focal_loss(x[0], x[1]); }, zeros_and_ones()),
              0.4487320647268101, 1e-14);
  const auto kl = [](KlOptions options, bool log_target) {
    return value(
        [&](Inputs x) {
          return kl_div(log_softmax(x[0]), log_target ? log_softmax(x[1]) : x[1], options);
        },
        log_target ? Tensor({2, 3}, std::vector<double>{0, 1, 0.5, 0.25, 0.75, -2}) : soft());
  };
  EXPECT_NEAR(kl({}, false), 0.08258162480472758, 1e-14);
  EXPECT_NEAR(kl({.reduction = LossReduction::kBatchMean}, false), 0.24774487441418275, 1e-14);
  EXPECT_NEAR(kl({.log_target = true, .reduction = LossReduction::kBatchMean}, true),
              0.7230037004094374, 1e-14);
}

// Without options it is the mean of sigmoid_cross_entropy(); and the loss of a sure 0 or 1 keeps
// its digits.
TEST(BinaryCrossEntropy, KeepsTheDigitsOfSmallLosses) {
  const Tensor x({2}, std::vector<double>{40, -40}), z({2}, std::vector<double>{1, 0});
  const Builder build = [](Inputs in) {
    return binary_cross_entropy_with_logits(in[0], in[1],
                                            {.pos_weight = {3}, .reduction = LossReduction::kNone});
  };
  const std::vector<double> y = doubles(compute(build, {x, z}));
  EXPECT_NEAR(y[0] / (3 * std::exp(-40.0)), 1, 1e-12);
  EXPECT_NEAR(y[1] / std::exp(-40.0), 1, 1e-12);
}

TEST(KlDiv, TakesTargetsOfZeroInShortTypes) {
  const Tensor x({2}, std::vector<double>{-1, -2}), t({2}, std::vector<double>{0, 1});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Builder build = [=](Inputs in) {
      return cast(kl_div(cast(in[0], dtype), cast(in[1], dtype)), DType::kF64);
    };
    EXPECT_EQ(doubles(compute(build, {x, t})), (std::vector<double>{1}));
  }
}

TEST(ClassificationLosses, KeepTheirContract) {
  const std::vector<Tensor> inputs{random_values({5, 7}), random_values({5, 7}, 0.1, 0.9, 2)};
  check_op({.build = [](Inputs x) { return hinge_loss(x[0], x[1]); }, .inputs = inputs});
  check_op({.build = [](Inputs x) { return softmax_cross_entropy(x[0], x[1]); },
            .inputs = inputs,
            .f32 = 4e-6});
  check_op({.build =
                [](Inputs x) {
                  return binary_cross_entropy_with_logits(x[0], x[1],
                                                          {.pos_weight = {1, 2, 3, 4, 5, 6, 7}});
                },
            .inputs = inputs,
            .f32 = 4e-6});
  check_op({.build = [](Inputs x) { return sigmoid_focal_loss(x[0], x[1]); },
            .inputs = inputs,
            .f32 = 4e-6});
  check_op({.build = [](Inputs x) { return kl_div(x[0], x[1]); }, .inputs = inputs, .f32 = 4e-6});
  check_op({.build = [](Inputs x) { return kl_div(x[0], x[1], {.log_target = true}); },
            .inputs = inputs,
            .f32 = 4e-6});
}

TEST(ClassificationLosses, RefuseShapesAndOptionsThatDoNotFit) {
  const std::vector<TensorType> types{{{8, 1}}, {{8}}}, same{{{8, 3}}, {{8, 3}}};
  const char* const refused = "predictions have shape [8,1] and targets [8]";
  expect_refused([](Inputs x) { return hinge_loss(x[0], x[1]); }, types, refused);
  expect_refused([](Inputs x) { return softmax_cross_entropy(x[0], x[1]); }, types, refused);
  expect_refused([](Inputs x) { return binary_cross_entropy_with_logits(x[0], x[1]); }, types,
                 refused);
  expect_refused([](Inputs x) { return sigmoid_focal_loss(x[0], x[1]); }, types, refused);
  expect_refused([](Inputs x) { return kl_div(x[0], x[1]); }, types, refused);
  expect_refused(
      [](Inputs x) {
        return binary_cross_entropy_with_logits(x[0], x[1], {.pos_weight = {1, 2}});
      },
      same, "pos_weight has 2 numbers for logits [8,3]; give one, or one for each element");
  expect_refused([](Inputs x) { return sigmoid_focal_loss(x[0], x[1], {.gamma = -1}); }, same,
                 "gamma must not be negative and alpha be at most 1, but they are -1 and 0.25");
}

}  // namespace classification_test
}  // namespace belfry
