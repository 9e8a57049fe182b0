#include "belfry/ops/losses/class_weights.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace class_weights_test {

Tensor logits() { return Tensor({2, 3}, std::vector<double>{0.5, -1, 2, 0.25, 3, -0.75}); }
Tensor labels(std::vector<std::int32_t> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor({count}, values);
}

Builder weights_of(ClassWeightsOptions options = {}) {
  return [options](Inputs x) { return class_weights(x[0], x[1], options); };
}

TEST(ClassWeights, AreThoseOfTheLabelsClasses) {
  const Tensor weights({3}, std::vector<double>{1, 2, 0.5});
  EXPECT_EQ(doubles(compute(weights_of(), {weights, labels({2, 0, 1, 1})})),
            (std::vector<double>{0.5, 1, 2, 2}));
  const Tensor wide({2}, std::vector<std::int64_t>{-100, 1});
  EXPECT_EQ(doubles(compute(weights_of({.ignored = -100}), {weights, wide})),
            (std::vector<double>{0, 2}));
  EXPECT_EQ(doubles(compute(weights_of({.ignored = 1}), {weights, labels({1, 2})})),
            (std::vector<double>{0, 0.5}));
}

TEST(ClassWeights, KeepTheirContract) {
  check_op({.build = [](Inputs x) { return class_weights(x[1], x[0]); },
            .inputs = {labels({0, 6, 3, 3, 1}), random_values({7})},
            .gradient = -1,
            .nan = false});
}

TEST(ClassWeights, NamesARowWhoseLabelIsNoClass) {
  for (const std::int32_t wrong : {3, -1}) {
    try {
      compute(weights_of(), {random_values({3}), labels({0, wrong})});
      FAIL() << "label " << wrong << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(cat("label ", wrong, " in row 1 is not one of the")),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(ClassWeights, RefuseOtherLabels) {
  expect_refused(weights_of(), {{{3}}, {{2}}}, "labels are i32 or i64, not f32");
}

std::vector<double> losses(const std::vector<std::int32_t>& given,
                           const WeightedCrossEntropyOptions& options) {
  return doubles(compute([&](Inputs x) { return weighted_cross_entropy(x[0], x[1], options); },
                         {logits(), labels(given)}));
}

// Values of torch.nn.functional.cross_entropy(weight=..., reduction="none").
TEST(WeightedCrossEntropy, HasTheValuesOfPyTorch) {
  std::vector<double> y = losses({2, 0}, {.class_weights = {1, 2, 0.5}});
  EXPECT_NEAR(y[0], 0.12065564832857852, 1e-14);
  EXPECT_NEAR(y[1], 2.833831466235782, 1e-14);
  y = losses({2, 0}, {.class_weights = {1, 2, 0.5}, .smoothing = 0.1});
  EXPECT_NEAR(y[0], 0.38674306810572234, 1e-14);
  EXPECT_NEAR(y[1], 2.7143953240063783, 1e-14);
  y = losses({2, -100}, {.class_weights = {1, 2, 0.5}, .smoothing = 0.1, .ignored = -100});
  EXPECT_NEAR(y[0], 0.38674306810572234, 1e-14);
  EXPECT_EQ(y[1], 0);
}

TEST(WeightedCrossEntropy, KeepsItsContract) {
  check_op({.build =
                [](Inputs x) {
                  return weighted_cross_entropy(x[0], x[1],
                                                {.class_weights = {1, 2, 0.5}, .smoothing = 0.1});
                },
            .inputs = {random_values({5, 3}), labels({0, 2, 1, 1, 2})},
            .f32 = 4e-6});
}

TEST(WeightedCrossEntropy, RefusesOptionsThatDoNotFit) {
  const auto built = [](WeightedCrossEntropyOptions options) -> Builder {
    return [=](Inputs x) { return weighted_cross_entropy(x[0], x[1], options); };
  };
  const std::vector<TensorType> types{{{8, 3}}, {{8}, DType::kI32}};
  expect_refused(built({.class_weights = {1, 2}}), types,
                 "class_weights has 2 numbers for 3 classes");
  expect_refused(built({.class_weights = {1, 2, -1}}), types,
                 "weights of classes must not be negative, but one is -1");
  expect_refused(built({.class_weights = {1, 2, 1}, .smoothing = 2}), types,
                 "weighted_cross_entropy (built at class_weights_test.cc:");
  expect_refused(built({.class_weights = {1, 2}}), {{{8, kUnknownSize}}, {{8}, DType::kI32}},
                 "the number of classes of [8,?] must be known");
  expect_refused(built({.class_weights = {1}}), {{{}}, {{8}, DType::kI32}},
                 "takes logits [n, classes], not f32[]");
}

}  // namespace class_weights_test
}  // namespace belfry
