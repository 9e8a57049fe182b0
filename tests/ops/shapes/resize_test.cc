#include "belfry/ops/shapes/resize.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace resize_test {

Builder to_size(std::int64_t height, std::int64_t width, ResizeMethod method) {
  return [=](Inputs x) { return resize(x[0], {height, width}, method); };
}

std::vector<double> resized_row(std::vector<float> row, std::int64_t width, ResizeMethod method) {
  const auto size = static_cast<std::int64_t>(row.size());
  return doubles(compute(to_size(1, width, method), {Tensor({1, 1, size, 1}, row)}));
}

// Values of torch.nn.functional.interpolate.
TEST(Resize, TakesTheNearestPixels) {
  EXPECT_EQ(resized_row({1, 2, 3}, 6, ResizeMethod::kNearest),
            (std::vector<double>{1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(resized_row({1, 2, 3, 4}, 2, ResizeMethod::kNearest), (std::vector<double>{1, 3}));
  EXPECT_EQ(resized_row({1, 2, 3, 4}, 2, ResizeMethod::kNearestExact), (std::vector<double>{2, 4}));
  EXPECT_EQ(resized_row({1, 2, 3, 4, 5}, 3, ResizeMethod::kNearest),
            (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(resized_row({1, 2, 3, 4, 5}, 3, ResizeMethod::kNearestExact),
            (std::vector<double>{1, 3, 5}));
}

TEST(Resize, MixesPixelsBetweenTheirCentres) {
  EXPECT_EQ(resized_row({1, 3}, 4, ResizeMethod::kBilinear), (std::vector<double>{1, 1.5, 2.5, 3}));
  EXPECT_EQ(resized_row({1, 2, 3, 6}, 2, ResizeMethod::kBilinear), (std::vector<double>{1.5, 4.5}));
  const Tensor square({1, 2, 2, 1}, std::vector<float>{0, 4, 8, 12});
  EXPECT_EQ(compute(to_size(3, 3, ResizeMethod::kBilinear), {square}),
            Tensor({1, 3, 3, 1}, std::vector<float>{0, 2, 4, 4, 6, 8, 8, 10, 12}));
}

TEST(Resize, KeepsTheContractOfMapAxes) {
  for (const ResizeMethod method : {ResizeMethod::kNearest, ResizeMethod::kNearestExact}) {
    check_op({.build = to_size(7, 4, method), .inputs = {random_values({3, 3, 6, 2})}});
    check_op({.build = to_size(2, 6, method), .inputs = {random_values({3, 5, 3, 1})}});
  }
}

TEST(ResizeBilinear, KeepsItsContract) {
  for (const auto& [height, width] : {std::pair{7, 4}, {2, 9}, {1, 1}, {6, 6}})
    check_op({.build = to_size(height, width, ResizeMethod::kBilinear),
              .inputs = {random_values({3, 3, 6, 2})}});
  check_op(
      {.build = to_size(2, 3, ResizeMethod::kBilinear), .inputs = {random_values({2, 1, 9, 5})}});
}

// Rows that are too long for a buffer.
TEST(ResizeBilinear, KeepsItsContractForLongRows) {
  check_op({.build = to_size(1, 2, ResizeMethod::kBilinear),
            .inputs = {random_values({1, 2, 3, 1400})},
            .gradient = -1});
}

TEST(Resize, RefusesWrongSizes) {
  expect_refused(to_size(0, 3, ResizeMethod::kNearest), {{{1, 2, 2, 3}}}, "to 0 x 3 pixels");
  expect_refused(to_size(2, 3, ResizeMethod::kBilinear), {{{1, 2, 2}}},
                 "needs images [N,H,W,C], not f32[1,2,2]");
  expect_refused(to_size(2, 3, ResizeMethod::kBilinear), {{{1, kUnknownSize, 2, 2}}},
                 "height and width of [1,?,2,2] must be known");
  expect_refused(to_size(2, 3, ResizeMethod::kBilinear), {{{1, 0, 2, 2}}},
                 "cannot resize [1,0,2,2] to 2 x 3 pixels");
  expect_refused(to_size(2, 3, ResizeMethod::kBilinear), {{{1, 2, 2, 2}, DType::kI32}},
                 "ResizeBilinear");
}

}  // namespace resize_test
}  // namespace belfry
