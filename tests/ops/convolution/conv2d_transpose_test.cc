#include "belfry/ops/convolution/conv2d_transpose.h"

#include <numeric>

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace conv2d_transpose_test {

Builder with(Conv2dOptions options) {
  return [=](Inputs x) { return conv2d_transpose(x[0], x[1], options); };
}

TEST(Conv2dTranspose, SpreadsEachPixelByTheFilter) {
  const Tensor x({1, 1, 2, 1}, std::vector<double>{1, 10});
  const Tensor filter({1, 1, 3, 1}, std::vector<double>{1, 2, 3});
  EXPECT_EQ(doubles(compute(with({.stride = 2, .padding = Padding::kValid}), {x, filter})),
            (std::vector<double>{1, 2, 3 + 10, 20, 30}));
}

TEST(Conv2dTranspose, SpreadsTapsByTheDilation) {
  const Tensor x({1, 1, 2, 1}, std::vector<double>{1, 10});
  const Tensor filter({1, 1, 3, 1}, std::vector<double>{1, 2, 3});
  EXPECT_EQ(
      doubles(compute(with({.stride = 3, .padding = Padding::kValid, .dilation = 2}), {x, filter})),
      (std::vector<double>{1, 0, 2, 10, 3, 20, 0, 30}));
}

TEST(Conv2dTranspose, MakesEachGroupOfItsOwnChannels) {
  const Tensor x({1, 1, 1, 4}, std::vector<double>{1, 2, 3, 4});
  const Tensor filter({4, 1, 1, 2}, std::vector<double>{1, 10, 100, 1000, 1, 10, 100, 1000});
  EXPECT_EQ(doubles(compute(with({.groups = 2}), {x, filter})),
            (std::vector<double>{201, 2010, 403, 4030}));
}

TEST(Conv2dTranspose, MakesImagesLargerByTheStride) {
  const Tensor x = random_values({2, 3, 4, 5}), filter = random_values({5, 3, 3, 2}, -1, 1, 2);
  EXPECT_EQ(compute(with({.stride = 2}), {x, filter}).shape(), (Shape{2, 6, 8, 2}));
  EXPECT_EQ(compute(with({.stride = 2, .padding = Padding::kValid}), {x, filter}).shape(),
            (Shape{2, 7, 9, 2}));
  EXPECT_EQ(
      compute(with({.stride = 2, .padding = Padding::kValid, .dilation = 3}), {x, filter}).shape(),
      (Shape{2, 11, 13, 2}));
  EXPECT_EQ(compute(with({.stride = 2, .groups = 5}), {x, filter}).shape(), (Shape{2, 6, 8, 10}));
}

Tensor counting(Shape shape) {
  Tensor values(shape, DType::kF64);
  double next = 0;
  for (double& value : values.mutable_data<double>()) value = ++next;
  return values;
}

// The values of torch.nn.functional.conv_transpose2d. Less padding at the bottom and right is its
// output_padding.
TEST(Conv2dTranspose, GivesTheValuesOfPyTorchWithItsPadding) {
  const Tensor x = counting({1, 2, 2, 1});
  EXPECT_EQ(doubles(compute(with({.stride = 2, .padding = 1}), {x, counting({1, 4, 4, 1})})),
            (std::vector<double>{6, 17, 20, 14, 16, 42, 52, 34, 32, 82, 92, 58, 30, 69, 76, 44}));
  EXPECT_EQ(
      doubles(compute(with({.stride = 2, .padding = {1, 0, 1, 0}}), {x, counting({1, 3, 3, 1})})),
      (std::vector<double>{5, 14, 10, 12, 14, 36, 24, 30, 15, 34, 20, 24, 24, 55, 32, 36}));
}

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = doubles(a), right = doubles(b);
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// <conv2d(y), x> is <y, conv2d_transpose(x)>.
TEST(Conv2dTranspose, IsTheTransposeOfConv2d) {
  for (const Conv2dOptions& options :
       {Conv2dOptions{.stride = 2}, Conv2dOptions{.stride = 2, .padding = Padding::kValid},
        Conv2dOptions{.stride = 2, .dilation = 2, .groups = 2},
        Conv2dOptions{.padding = Padding::kValid, .dilation = 3, .groups = 4},
        Conv2dOptions{.stride = {3, 2}, .padding = {1, 0, 2, 1}, .dilation = {1, 2}}}) {
    const Tensor x = to(random_values({2, 3, 3, 4}), DType::kF64);
    const Tensor filter = to(random_values({4, 3, 3, 2}, -1, 1, 2), DType::kF64);
    const Tensor larger = compute(with(options), {x, filter});
    const Tensor y = to(random_values(larger.shape(), -1, 1, 3), DType::kF64);
    const Tensor smaller =
        compute([&](Inputs in) { return conv2d(in[0], in[1], options); }, {y, filter});
    EXPECT_NEAR(dot(smaller, x), dot(y, larger), 1e-12);
  }
}

TEST(Conv2dTranspose, KeepsItsContract) {
  for (const Conv2dOptions& options :
       {Conv2dOptions{.stride = 2}, Conv2dOptions{.stride = 2, .padding = Padding::kValid},
        Conv2dOptions{.stride = 2, .dilation = 2, .groups = 3},
        Conv2dOptions{.padding = Padding::kValid, .dilation = 3, .groups = 3},
        Conv2dOptions{.stride = 2, .padding = {1, 0, 1, 0}},
        Conv2dOptions{.stride = {3, 2}, .padding = {0, 2, 0, 1}, .dilation = {1, 2}}})
    check_op({.build = with(options),
              .inputs = {random_values({2, 3, 4, 3}), random_values({3, 3, 2, 2}, -1, 1, 2)},
              .f32 = 2e-6,
              .library = true,
              .nan = false});
}

TEST(Conv2dTranspose, RefusesOtherChannelsThanTheFilters) {
  expect_refused(with({}), {{{1, 4, 4, 3}}, {{2, 3, 3, 5}}},
                 "channels of image [n,h,w,in] and filter [in,kh,kw,out/groups] differ");
}

TEST(Conv2dTranspose, RefusesOptionsThatDoNotFit) {
  expect_refused(with({.groups = 2}), {{{1, 4, 4, 3}}, {{3, 3, 3, 5}}},
                 "3 channels of the image cannot be divided into groups of one size; 2 groups");
  expect_refused(with({.groups = 0}), {{{1, 4, 4, 3}}, {{3, 3, 3, 5}}},
                 "groups must be at least 1, not 0");
  expect_refused(with({.dilation = 0}), {{{1, 4, 4, 3}}, {{3, 3, 3, 5}}},
                 "the dilation must be at least 1, not 0");
  expect_refused(with({.stride = 0}), {{{1, 4, 4, 3}}, {{3, 3, 3, 5}}},
                 "the stride must be at least 1, not 0");
  expect_refused(with({.padding = -1}), {{{1, 4, 4, 3}}, {{3, 3, 3, 5}}},
                 "padding must not be negative, but the height has -1 before and -1 after");
  expect_refused(with({.padding = {0, 1, 0, 3}}), {{{1, 1, 1, 3}}, {{3, 3, 3, 5}}},
                 "a padding of 0 before and 3 after leaves nothing of a width of 3");
}

TEST(Conv2dTranspose, RefusesImagesOfUnknownSize) {
  expect_refused(with({}), {{{1, kUnknownSize, 4, 3}}, {{3, 3, 3, 5}}}, "must be known");
}

TEST(Conv2dTranspose, RefusesWhatIsNoImage) {
  expect_refused(with({}), {{{4, 4}}, {{2, 3, 3, 5}}}, "of rank 4");
}

}  // namespace conv2d_transpose_test
}  // namespace belfry
