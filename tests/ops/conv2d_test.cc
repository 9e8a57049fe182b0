#include "belfry/ops/conv2d.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace conv2d_test {

Builder convolution(Conv2dOptions options = {}) {
  return [=](Inputs x) { return conv2d(x[0], x[1], options); };
}

void check_convolution(Conv2dOptions options, Shape image, Shape filter) {
  check_op({.build = convolution(options),
            .inputs = {random_values(image), random_values(filter, -1, 1, 2)},
            .f32 = 2e-6,
            .library = true,
            .nan = false});
}

TEST(Conv2d, WindowsOfOddPaddingPutTheOddPixelLast) {
  const WindowAxis axis(14, 2, 1, Padding::kSame);
  EXPECT_EQ(axis.out, 14);
  EXPECT_EQ(axis.before, 0);
  EXPECT_EQ(axis.after, 1);
  const WindowAxis strided(5, 3, 2, Padding::kSame);
  EXPECT_EQ(strided.out, 3);
  EXPECT_EQ(strided.before, 1);
  EXPECT_EQ(strided.after, 1);
}

TEST(Conv2d, SumsUnderAFilterOfOnes) {
  const Tensor image({1, 3, 3, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor filter({1, 3, 3, 1}, std::vector<float>(9, 1));
  EXPECT_EQ(doubles(compute(convolution(), {image, filter})),
            (std::vector<double>{12, 21, 16, 27, 45, 33, 24, 39, 28}));
  EXPECT_EQ(doubles(compute(convolution({.padding = Padding::kValid}), {image, filter})),
            (std::vector<double>{45}));
}

TEST(Conv2d, PadsAtTheBottomAndRightFirst) {
  const Tensor image({1, 2, 2, 1}, std::vector<float>{1, 2, 3, 4});
  const Tensor filter({1, 2, 2, 1}, std::vector<float>{1, 10, 100, 1000});
  EXPECT_EQ(doubles(compute(convolution(), {image, filter})),
            (std::vector<double>{4321, 402, 43, 4}));
}

TEST(Conv2d, MixesChannels) {
  const Tensor image({1, 1, 1, 2}, std::vector<float>{1, 2});
  const Tensor filter({3, 1, 1, 2}, std::vector<float>{1, 0, 0, 1, 1, 1});
  EXPECT_EQ(doubles(compute(convolution(), {image, filter})), (std::vector<double>{1, 2, 3}));
}

TEST(Conv2d, KeepsItsContractForFirstLayers) {
  check_convolution({}, {3, 6, 7, 1}, {8, 3, 3, 1});
  check_convolution({.stride = 2}, {3, 9, 8, 3}, {16, 3, 3, 3});
}

TEST(Conv2d, KeepsItsContractForInnerLayers) {
  check_convolution({}, {3, 5, 5, 16}, {8, 3, 3, 16});
  check_convolution({.stride = 2}, {3, 7, 7, 8}, {16, 1, 1, 8});
  check_convolution({.padding = Padding::kValid}, {3, 6, 5, 3}, {5, 2, 3, 3});
}

TEST(Conv2d, GradientsHaveGradients) {
  const Builder twice = [](Inputs x) {
    return Built(gradients(conv2d(x[0], x[1], {.stride = 2}), {x[0], x[1]}, {.initial = {x[2]}}));
  };
  check_op({.build = twice,
            .inputs = {random_values({2, 5, 4, 3}), random_values({4, 3, 3, 3}, -1, 1, 2),
                       random_values({2, 3, 2, 4}, -1, 1, 3)},
            .f32 = 2e-6,
            .library = true,
            .nan = false,
            .unknown = false});
}

TEST(Conv2d, TakesNaNFromImageAndFilter) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Tensor image = random_values({1, 8, 8, 16}), filter = random_values({16, 3, 3, 16}, -1, 1, 2);
  Tensor poisoned = image;
  poisoned.mutable_data<float>()[0] = nan;
  EXPECT_TRUE(std::isnan(compute(convolution(), {poisoned, filter}).data<float>()[0]));
  poisoned = filter;
  poisoned.mutable_data<float>()[4 * 16] = nan;  // the middle of the first filter
  EXPECT_TRUE(std::isnan(compute(convolution(), {image, poisoned}).data<float>()[0]));
}

TEST(Conv2d, RefusesChannelsThatDiffer) {
  expect_refused(convolution(), {{{1, 8, 8, 3}}, {{4, 3, 3, 1}}}, "[1,8,8,3] and [4,3,3,1]");
}

TEST(Conv2d, RefusesFiltersLargerThanTheImage) {
  expect_refused(convolution({.padding = Padding::kValid}), {{{1, 2, 8, 3}}, {{4, 3, 3, 3}}},
                 "a window of 3 does not fit an image of height 2");
}

TEST(Conv2d, RefusesGradientsForImagesOfUnknownSize) {
  expect_refused([](Inputs x) { return Built(gradients(conv2d(x[0], x[1]), {x[0]})); },
                 {{{1, kUnknown, 8, 3}}, {{4, 3, 3, 3}}},
                 "give the placeholder a height and width");
}

}  // namespace conv2d_test
}  // namespace belfry
