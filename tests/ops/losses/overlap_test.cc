#include "belfry/ops/losses/overlap.h"

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/cast.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace overlap_test {

constexpr LossReduction kNone = LossReduction::kNone;

TEST(DiceLoss, IsOneLessTheOverlapOfEachSample) {
  const Tensor p({2, 2, 2}, std::vector<double>{1, 0.5, 0, 0.5, 0, 0, 0, 0});
  const Tensor t({2, 2, 2}, std::vector<double>{1, 0, 0, 1, 0, 0, 0, 0});
  const auto losses = [&](DiceOptions options) {
    return doubles(compute([&](Inputs x) { return dice_loss(x[0], x[1], options); }, {p, t}));
  };
  // The second sample is empty.
  EXPECT_EQ(losses({.smooth = 1, .reduction = kNone}),
            (std::vector<double>{1 - (2 * 1.5 + 1) / (2 + 2 + 1), 0}));
  EXPECT_EQ(losses({.smooth = 1, .per_channel = true, .reduction = kNone}),
            (std::vector<double>{0, 1 - (2 * 0.5 + 1) / (1 + 1 + 1), 0, 0}));
  EXPECT_NEAR(losses({})[0], 0.1, 1e-15);
}

TEST(CosineSimilarity, HasTheValuesOfPyTorch) {
  const Tensor a({2, 3}, std::vector<double>{0.5, -1, 2, 0.25, 3, -0.75});
  const Tensor b({2, 3}, std::vector<double>{0, 1, 0.5, 0.25, 0.75, -2});
  const std::vector<double> y =
      doubles(compute([](Inputs x) { return cosine_similarity(x[0], x[1]); }, {a, b}));
  EXPECT_NEAR(y[0], 0, 1e-15);
  EXPECT_NEAR(y[1], 0.5714176025623261, 1e-15);
  const Builder columns = [](Inputs x) { return cosine_similarity(x[0], x[1], {.axis = 0}); };
  EXPECT_EQ(doubles(compute(columns, {a, a})).size(), 3);
  EXPECT_NEAR(doubles(compute(columns, {a, a}))[1], 1, 1e-15);
}

TEST(CosineSimilarity, OfNothingIsZeroAndSoIsItsGradient) {
  const Tensor a(Shape{1, 3}, DType::kF64), b({1, 3}, std::vector<double>{1, 2, 3});
  const Builder build = [](Inputs x) { return cosine_similarity(x[0], x[1]); };
  EXPECT_EQ(doubles(compute(build, {a, b})), (std::vector<double>{0}));
  const Builder gradient = [&](Inputs x) { return gradients(build(x)[0], {x[1]})[0]; };
  EXPECT_EQ(doubles(compute(gradient, {a, b})), (std::vector<double>{0, 0, 0}));
}

TEST(CosineSimilarity, OfNothingIsZeroInF16) {
  const Tensor a(Shape{1, 3}, DType::kF64), b({1, 3}, std::vector<double>{1, 2, 3});
  const Builder build = [](Inputs x) {
    return cast(cosine_similarity(cast(x[0], DType::kF16), cast(x[1], DType::kF16)), DType::kF64);
  };
  EXPECT_EQ(doubles(compute(build, {a, b})), (std::vector<double>{0}));
}

TEST(Overlap, FunctionsKeepTheirContract) {
  const std::vector<Tensor> inputs{random_values({5, 4, 3}, 0.1, 1),
                                   random_values({5, 4, 3}, 0.1, 1, 2)};
  check_op(
      {.build = [](Inputs x) { return dice_loss(x[0], x[1]); }, .inputs = inputs, .f32 = 4e-6});
  check_op({.build = [](Inputs x) { return dice_loss(x[0], x[1], {.per_channel = true}); },
            .inputs = inputs,
            .f32 = 4e-6});
  check_op({.build = [](Inputs x) { return cosine_similarity(x[0], x[1]); },
            .inputs = inputs,
            .f32 = 4e-6});
}

TEST(Overlap, RefusesShapesAndOptionsThatDoNotFit) {
  const std::vector<TensorType> types{{{8, 1}}, {{8}}};
  expect_refused([](Inputs x) { return dice_loss(x[0], x[1]); }, types,
                 "dice_loss (built at overlap_test.cc:");
  expect_refused([](Inputs x) { return cosine_similarity(x[0], x[1]); }, types,
                 "predictions have shape [8,1] and targets [8]");
  expect_refused([](Inputs x) { return dice_loss(x[0], x[1]); }, {{{8}}, {{8}}},
                 "needs samples with several elements, but the shape is [8]");
  expect_refused([](Inputs x) { return cosine_similarity(x[0], x[1], {.epsilon = 0}); },
                 {{{8, 2}}, {{8, 2}}}, "epsilon must be positive, not 0");
}

}  // namespace overlap_test
}  // namespace belfry
