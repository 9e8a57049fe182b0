#include "belfry/ops/conv1d.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace conv1d_test {

Builder convolution(Conv1dOptions options = {}) {
  return [=](Inputs x) { return conv1d(x[0], x[1], options); };
}
Builder maxima(Pool1dOptions options) {
  return [=](Inputs x) { return max_pool1d(x[0], options); };
}
Builder means(Pool1dOptions options) {
  return [=](Inputs x) { return avg_pool1d(x[0], options); };
}

Tensor counting(Shape shape) {
  Tensor values(shape, DType::kF64);
  double next = 0;
  for (double& value : values.mutable_data<double>()) value = ++next;
  return values;
}

// The values of torch.nn.functional.conv1d.
TEST(Conv1d, GivesTheValuesOfPyTorchWithItsPadding) {
  const Tensor x = counting({1, 5, 2}), filter = counting({2, 3, 2});
  EXPECT_EQ(doubles(compute(convolution({.stride = 2, .padding = 1}), {x, filter})),
            (std::vector<double>{50, 110, 133, 331, 90, 294}));
  EXPECT_EQ(doubles(compute(convolution({.padding = {2, 0}}), {x, filter})),
            (std::vector<double>{17, 35, 50, 110, 91, 217, 133, 331, 175, 445}));
  EXPECT_EQ(compute(convolution(), {x, filter}).shape(), (Shape{1, 5, 2}));
  EXPECT_EQ(compute(convolution({.padding = Padding::kValid}), {x, filter}).shape(),
            (Shape{1, 3, 2}));
}

TEST(Conv1d, PoolsAsPyTorch) {
  const Tensor x = counting({1, 5, 2});
  const Pool1dOptions padded{.window = 3, .stride = 2, .padding = 1};
  EXPECT_EQ(doubles(compute(maxima(padded), {x})), (std::vector<double>{3, 4, 7, 8, 9, 10}));
  EXPECT_EQ(doubles(compute(means(padded), {x})), (std::vector<double>{2, 3, 5, 6, 8, 9}));
  Pool1dOptions counting_all = padded;
  counting_all.count_include_pad = true;
  const std::vector<double> y = doubles(compute(means(counting_all), {x}));
  EXPECT_DOUBLE_EQ(y[0], 4.0 / 3);
  EXPECT_DOUBLE_EQ(y[5], 6);
}

TEST(Conv1d, KeepsItsContract) {
  for (const Conv1dOptions& options :
       {Conv1dOptions{}, Conv1dOptions{.stride = 2, .padding = 1},
        Conv1dOptions{.padding = {4, 0}, .dilation = 2, .groups = 2}})
    check_op(
        {.build = convolution(options),
         .inputs = {random_values({3, 7, 4}), random_values({6, 3, 4 / options.groups}, -1, 1, 2)},
         .f32 = 2e-6,
         .library = true,
         .nan = false});
  check_op({.build = means({.window = 3, .stride = 2, .padding = {0, 1}}),
            .inputs = {random_values({3, 7, 4})}});
}

TEST(Conv1d, RefusesWhatIsNoSequence) {
  expect_refused(convolution(), {{{2, 5, 5, 3}}, {{4, 3, 3}}}, "takes sequences [n,w,c], not");
  expect_refused(convolution(), {{{2, 5, 3}}, {{4, 3, 3, 3}}},
                 "takes filters [out,k,in/groups], not");
  expect_refused(maxima({}), {{{2, 5}}}, "max_pool1d");
  expect_refused(means({}), {{{kUnknownSize, kUnknownSize, 3}}},
                 "two sizes of f32[?,?,3] are unknown; give the placeholder its width");
  expect_refused(convolution({.padding = {1, 2, 1, 1}}), {{{2, 5, 3}}, {{4, 3, 3}}},
                 "the padding of sequences is one number, or {before, after}, not [1,2,1,1]");
}

}  // namespace conv1d_test
}  // namespace belfry
