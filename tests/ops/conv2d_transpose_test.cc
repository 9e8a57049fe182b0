#include "belfry/ops/conv2d_transpose.h"

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

TEST(Conv2dTranspose, MakesImagesLargerByTheStride) {
  const Tensor x = random_values({2, 3, 4, 5}), filter = random_values({5, 3, 3, 2}, -1, 1, 2);
  EXPECT_EQ(compute(with({.stride = 2}), {x, filter}).shape(), (Shape{2, 6, 8, 2}));
  EXPECT_EQ(compute(with({.stride = 2, .padding = Padding::kValid}), {x, filter}).shape(),
            (Shape{2, 7, 9, 2}));
}

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = doubles(a), right = doubles(b);
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// <conv2d(y), x> is <y, conv2d_transpose(x)>.
TEST(Conv2dTranspose, IsTheTransposeOfConv2d) {
  for (const Padding padding : {Padding::kSame, Padding::kValid}) {
    const Conv2dOptions options{.stride = 2, .padding = padding};
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
  for (const Padding padding : {Padding::kSame, Padding::kValid})
    check_op({.build = with({.stride = 2, .padding = padding}),
              .inputs = {random_values({2, 3, 4, 3}), random_values({3, 3, 2, 2}, -1, 1, 2)},
              .f32 = 2e-6,
              .library = true,
              .nan = false});
}

TEST(Conv2dTranspose, RefusesOtherChannelsThanTheFilters) {
  expect_refused(with({}), {{{1, 4, 4, 3}}, {{2, 3, 3, 5}}}, "channels of gradient and filter");
}

TEST(Conv2dTranspose, RefusesWhatIsNoImage) {
  expect_refused(with({}), {{{4, 4}}, {{2, 3, 3, 5}}}, "of rank 4");
}

}  // namespace conv2d_transpose_test
}  // namespace belfry
