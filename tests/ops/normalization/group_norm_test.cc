#include "belfry/ops/normalization/group_norm.h"

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace group_norm_test {

Builder norm(GroupNormOptions options) {
  return [=](Inputs x) { return group_norm(x[0], x[1], x[2], options); };
}
Builder gradient(GroupNormOptions options) {
  return [=](Inputs x) {
    return Built(
        gradients(group_norm(x[0], x[1], x[2], options), {x[0], x[1], x[2]}, {.initial = {x[3]}}));
  };
}

// The squares of 0, 1, ...
Tensor squares(Shape shape) {
  Tensor values(shape, DType::kF64);
  double i = 0;
  for (double& value : values.mutable_data<double>()) {
    value = i * i;
    ++i;
  }
  return values;
}

void expect_near(const Tensor& actual, const std::vector<double>& expected) {
  const std::vector<double> values = doubles(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-12) << i;
}

// The values of torch.nn.functional.group_norm and instance_norm.
TEST(GroupNorm, GivesTheValuesOfPyTorch) {
  const Tensor gamma({4}, std::vector<double>{1, 2, 3, 4});
  const Tensor beta({4}, std::vector<double>{0, 0.5, 1, 1.5});
  expect_near(compute(norm({.groups = 2, .epsilon = 1e-3}), {squares({1, 2, 2, 4}), gamma, beta}),
              {-1.0277366063066948, -1.5225856412115755, -2.3915346077960926, -2.7665633107491336,
               -0.764636035092181, -0.7332839275680338, -1.1652170094969403, -0.7227006469172134,
               0.024665678551360593, 1.1084200709335632, 1.287418187101364, 2.956252147980243,
               1.3401685346239298, 4.002526354293216, 4.96637098199882, 8.270295073943235});
}

TEST(GroupNorm, AGroupPerChannelIsInstanceNorm) {
  const Builder plain = [](Inputs x) { return instance_norm(x[0], {.epsilon = 1e-3}); };
  expect_near(compute(plain, {squares({1, 2, 2, 4})}),
              {-0.9999998405612626, -1.0522734570127055, -1.0910893497021625, -1.1209513280997285,
               -0.7142856004009018, -0.6808828251258682, -0.6546536098212975, -0.6335811854476726,
               0.14285712008018037, 0.18569531594341873, 0.21821786994043252, 0.24368507132602785,
               1.5714283208819841, 1.5474609661951555, 1.5275250895830277, 1.510847442221373});
  const Builder affine = [](Inputs x) { return instance_norm(x[0], x[1], x[2]); };
  const std::vector<Tensor> inputs{random_values({2, 3, 4}), random_values({4}, 0.5, 2, 2),
                                   random_values({4}, -1, 1, 3)};
  EXPECT_EQ(compute(affine, inputs), compute(norm({.groups = 4}), inputs));
}

TEST(GroupNorm, ALargeMeanDoesNotDestroyTheVariance) {
  std::vector<float> values;
  for (int i = 0; i < 4000; ++i) values.push_back(10000 + static_cast<float>(i / 4 % 2));
  const Tensor ones({4}, std::vector<float>(4, 1)), zeros({4}, DType::kF32);
  const std::vector<double> y =
      doubles(compute(norm({.groups = 2}), {Tensor({1, 1000, 4}, values), ones, zeros}));
  for (const std::size_t i : {0, 4, 2001, 3998}) EXPECT_NEAR(y[i], i / 4 % 2 ? 1 : -1, 1e-4) << i;
}

TEST(GroupNorm, OfNoPixelsOrNoSamplesHasGradientsOfZero) {
  for (const Shape& shape : {Shape{2, 0, 4}, Shape{0, 3, 4}}) {
    const Tensor x = random_values(shape), channels = random_values({4});
    EXPECT_EQ(compute(norm({.groups = 2}), {x, channels, channels}).shape(), shape);
    for (const std::size_t i : {1, 2}) {
      const Builder build = [i](Inputs in) { return gradient({.groups = 2})(in)[i]; };
      EXPECT_EQ(doubles(compute(build, {x, channels, channels, x})), std::vector<double>(4)) << i;
    }
  }
}

TEST(GroupNorm, KeepsItsContract) {
  struct Case {
    Shape shape;
    int groups;
  };
  for (const auto& [shape, groups] : {Case{{3, 5, 4, 6}, 3}, Case{{3, 6}, 2}, Case{{3, 7, 4}, 4},
                                      Case{{2, 3, 5}, 1}, Case{{2, 40, 30, 8}, 4}})
    check_op({.build = norm({.groups = groups}),
              .inputs = {random_values(shape), random_values({shape.back()}, 0.5, 2, 2),
                         random_values({shape.back()}, -1, 1, 3)},
              .f32 = 3e-6,
              .f64 = 1e-12,
              // Numeric gradients of so many take too long.
              .gradient = shape.elements() > 1000 ? -1 : 1e-6});
}

TEST(GroupNorm, GradientsOfManyPixelsMatchPlainLoops) {
  check_op({.build = gradient({.groups = 3}),
            .inputs = {random_values({3, 900, 6}), random_values({6}, 0.5, 2, 2),
                       random_values({6}, -1, 1, 3), random_values({3, 900, 6}, -1, 1, 4)},
            .f32 = 3e-6,
            .f64 = 1e-12,
            .gradient = -1,
            .nan = false,
            .unknown = false});
}

TEST(GroupNorm, GradientsHaveGradients) {
  check_op({.build = gradient({.groups = 2}),
            .inputs = {random_values({3, 2, 2, 4}), random_values({4}, 0.5, 2, 2),
                       random_values({4}, -1, 1, 3), random_values({3, 2, 2, 4}, -1, 1, 4)},
            .f32 = 5e-6,
            .f64 = 1e-12,
            .nan = false});
}

TEST(GroupNorm, RefusesWhatItCannotNormalise) {
  expect_refused(norm({.groups = 2}), {{{8, 4}}, {{5}}, {{4}}},
                 "input 1 has shape [5], but there are 4 channels");
  expect_refused(norm({.groups = 3}), {{{8, 4}}, {{4}}, {{4}}},
                 "the channels of [8,4] cannot be divided into 3 groups of one size");
  expect_refused(norm({.groups = 0}), {{{8, 4}}, {{4}}, {{4}}}, "groups must be at least 1, not 0");
  expect_refused(norm({.groups = 2, .epsilon = -1}), {{{8, 4}}, {{4}}, {{4}}},
                 "epsilon must not be negative, but is -1");
  expect_refused(norm({.groups = 2}), {{{4}}, {{4}}, {{4}}},
                 "needs samples with channels, but the shape is [4]");
  expect_refused(
      [](Inputs x) {
        return x[0].graph().add(kGroupNormGrad, x, {}, NodeOptions(GroupNormOptions{2})).output(0);
      },
      {{{8, 4}}, {{9, 4}}, {{4}}}, "gradient and input have shapes [8,4] and [9,4]");
  expect_refused([](Inputs x) { return instance_norm(x[0]); }, {{{2, kUnknownSize}}},
                 "must be known");
  expect_refused(
      [](Inputs x) {
        const Output dx = gradients(group_norm(x[0], x[1], x[2], {.groups = 2}), {x[0]}).at(0);
        return Built(gradients(dx, {x[0]}));
      },
      {{{2, kUnknownSize, 4}}, {{4}}, {{4}}}, "second derivatives need the size of");
}

}  // namespace group_norm_test
}  // namespace belfry
