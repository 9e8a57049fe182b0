#include "belfry/ops/convolution/conv2d.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

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
  const WindowAxis axis(14, 2, 1, Padding::kSame.vertical());
  EXPECT_EQ(axis.out, 14);
  EXPECT_EQ(axis.before, 0);
  EXPECT_EQ(axis.after, 1);
  const WindowAxis strided(5, 3, 2, Padding::kSame.vertical());
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

TEST(Conv2d, LeavesPixelsOutBetweenDilatedTaps) {
  const Tensor row({1, 1, 7, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7});
  const Tensor filter({1, 1, 3, 1}, std::vector<float>{1, 10, 100});
  EXPECT_EQ(
      doubles(compute(convolution({.padding = Padding::kValid, .dilation = 2}), {row, filter})),
      (std::vector<double>{531, 642, 753}));
  EXPECT_EQ(doubles(compute(convolution({.stride = 2, .dilation = 3}), {row, filter})),
            (std::vector<double>{410, 630, 52, 74}));
  // Only the middle tap meets the image.
  EXPECT_EQ(doubles(compute(convolution({.dilation = 9}), {row, filter})),
            (std::vector<double>{10, 20, 30, 40, 50, 60, 70}));
}

TEST(Conv2d, MakesEachGroupOfItsOwnChannels) {
  const Tensor pixel({1, 1, 1, 4}, std::vector<float>{1, 2, 3, 4});
  const Tensor halves({2, 1, 1, 2}, std::vector<float>{1, 10, 100, 1000});
  EXPECT_EQ(doubles(compute(convolution({.groups = 2}), {pixel, halves})),
            (std::vector<double>{21, 4300}));
  // Depthwise, with two outputs for each channel.
  const Tensor each({8, 1, 1, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(doubles(compute(convolution({.groups = 4}), {pixel, each})),
            (std::vector<double>{1, 2, 6, 8, 15, 18, 28, 32}));
}

// One axis of a convolution, by the definition of its padding alone.
struct DefinedAxis {
  DefinedAxis(std::int64_t in_size, std::int64_t filter_taps, int by, const AxisPadding& padding,
              int between)
      : in(in_size), taps(filter_taps), stride(by), dilation(between), before(padding.before) {
    const std::int64_t window = (taps - 1) * dilation + 1;
    out = (in + before + padding.after - window) / stride + 1;
    if (!padding.same) return;
    out = (in + stride - 1) / stride;
    before = std::max<std::int64_t>(0, (out - 1) * stride + window - in) / 2;
  }
  std::int64_t pixel(std::int64_t o, std::int64_t tap) const {
    return o * stride - before + tap * dilation;
  }
  bool has(std::int64_t pixel) const { return pixel >= 0 && pixel < in; }

  std::int64_t in, taps, stride, dilation, before, out;
};

// Computes y pixel by pixel.
Tensor by_definition(const Tensor& x, const Tensor& filter, const Conv2dOptions& o) {
  const DefinedAxis v(x.shape()[1], filter.shape()[1], o.stride.vertical, o.padding.vertical(),
                      o.dilation.vertical);
  const DefinedAxis h(x.shape()[2], filter.shape()[2], o.stride.horizontal, o.padding.horizontal(),
                      o.dilation.horizontal);
  const std::int64_t channels = filter.shape()[3], outputs = filter.shape()[0];
  Tensor y({x.shape()[0], v.out, h.out, outputs}, DType::kF64);
  std::size_t next = 0;
  for (std::int64_t n = 0; n < x.shape()[0]; ++n)
    for (std::int64_t at = 0; at < v.out * h.out * outputs; ++at) {
      const std::int64_t row = at / outputs / h.out, column = at / outputs % h.out,
                         to = at % outputs;
      const std::int64_t first = to / (outputs / o.groups) * channels;
      double sum = 0;
      for (std::int64_t tap = 0; tap < v.taps * h.taps; ++tap) {
        const std::int64_t r = v.pixel(row, tap / h.taps), c = h.pixel(column, tap % h.taps);
        if (!v.has(r) || !h.has(c)) continue;
        for (std::int64_t i = 0; i < channels; ++i)
          sum += x.data<double>()[static_cast<std::size_t>(
                     ((n * v.in + r) * h.in + c) * channels * o.groups + first + i)] *
                 filter.data<double>()[static_cast<std::size_t>(
                     (to * v.taps * h.taps + tap) * channels + i)];
      }
      y.mutable_data<double>()[next++] = sum;
    }
  return y;
}

void expect_definition(const Conv2dOptions& options, const Tensor& x, const Tensor& filter) {
  const Tensor wide = to(x, DType::kF64), wide_filter = to(filter, DType::kF64);
  const Tensor expected = by_definition(wide, wide_filter, options);
  const std::string name = NodeOptions(options).str();
  EXPECT_LE(difference(compute(convolution(options), {wide, wide_filter}), expected), 1e-14)
      << name;
  EXPECT_LE(difference(to(compute(convolution(options), {x, filter}), DType::kF64), expected), 2e-6)
      << name;
}

TEST(Conv2d, GivesWhatItsDefinitionSays) {
  for (const Padding padding : {Padding::kSame, Padding::kValid})
    for (const int stride : {1, 2, 3})
      for (const int dilation : {1, 2, 3, 5})
        for (const auto& [groups, in, out] :
             {std::array{1, 3, 4}, std::array{2, 4, 6}, std::array{8, 8, 8}, std::array{3, 3, 6}})
          expect_definition({stride, padding, dilation, groups}, random_values({2, 11, 11, in}),
                            random_values({out, 3, 3, in / groups}, -1, 1, 2));
}

TEST(Conv2d, GivesWhatItsDefinitionSaysForGivenPadding) {
  for (const Padding padding : {Padding(1), Padding(0, 2), Padding(2, 0, 1, 3), Padding(7)})
    for (const PerAxis stride : {PerAxis(2), PerAxis(3, 1)})
      for (const PerAxis dilation : {PerAxis(1), PerAxis(1, 2)})
        for (const auto& [groups, in, out] : {std::array{1, 16, 16}, std::array{2, 6, 4}})
          for (const PerAxis taps : {PerAxis(3), PerAxis(1, 4)})
            expect_definition(
                {stride, padding, dilation, groups}, random_values({1, 6, 7, in}),
                random_values({out, taps.vertical, taps.horizontal, in / groups}, -1, 1, 2));
}

Tensor counting(Shape shape) {
  Tensor values(shape, DType::kF64);
  double next = 0;
  for (double& value : values.mutable_data<double>()) value = ++next;
  return values;
}

// The values of torch.nn.functional.conv2d.
TEST(Conv2d, GivesTheValuesOfPyTorchWithItsPadding) {
  const Tensor image = counting({1, 4, 4, 1}), filter = counting({1, 3, 3, 1});
  const std::vector<double> padded{111, 217, 363, 573};
  EXPECT_EQ(doubles(compute(convolution({.stride = 2, .padding = 1}), {image, filter})), padded);
  EXPECT_NE(doubles(compute(convolution({.stride = 2}), {image, filter})), padded);
  const Tensor row({1, 1, 3, 1}, std::vector<double>{1, 10, 100});
  const Conv2dOptions per_axis{.stride = {1, 2}, .padding = {0, 1}, .dilation = {1, 2}};
  EXPECT_EQ(doubles(compute(convolution(per_axis), {counting({1, 2, 6, 1}), row})),
            (std::vector<double>{420, 642, 1080, 1308}));
}

TEST(Conv2d, PaddingWithoutPixelsIsValid) {
  EXPECT_EQ(Padding(0), Padding::kValid);
  EXPECT_EQ(Padding(1), Padding(1, 1, 1, 1));
  EXPECT_EQ(Padding(1, 2), Padding(1, 1, 2, 2));
  EXPECT_NE(Padding(0), Padding::kSame);
}

// Runs remember the options of nodes by their text.
TEST(Conv2d, OptionsHaveShortTexts) {
  EXPECT_EQ(NodeOptions(Conv2dOptions{}).str(), "{1,0,1,1}");
  EXPECT_EQ(NodeOptions(Conv2dOptions{.stride = 2, .padding = Padding::kValid}).str(), "{2,1,1,1}");
  EXPECT_EQ(NodeOptions(Conv2dOptions{.stride = {1, 2}, .padding = {1, 2}}).str(),
            "{[1,2],[1,1,2,2],1,1}");
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

TEST(Conv2d, KeepsItsContractForDilatedFilters) {
  check_convolution({.dilation = 2}, {3, 6, 7, 4}, {8, 3, 3, 4});
  check_convolution({.stride = 2, .dilation = 3}, {3, 9, 8, 3}, {16, 3, 3, 3});
  check_convolution({.padding = Padding::kValid, .dilation = 2}, {3, 6, 7, 3}, {5, 2, 3, 3});
  check_convolution({.dilation = 4}, {3, 3, 2, 8}, {8, 3, 3, 8});
}

TEST(Conv2d, KeepsItsContractForGivenPadding) {
  check_convolution({.stride = 2, .padding = 1}, {3, 6, 7, 3}, {8, 3, 3, 3});
  check_convolution({.stride = 2, .padding = {0, 1, 2, 0}}, {3, 6, 7, 8}, {16, 3, 3, 8});
  check_convolution({.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}, {3, 6, 7, 4},
                    {4, 3, 2, 4});
  check_convolution({.padding = 4, .groups = 4}, {2, 3, 2, 4}, {4, 3, 3, 1});
}

TEST(Conv2d, KeepsItsContractForGroups) {
  check_convolution({.groups = 2}, {3, 5, 6, 4}, {6, 3, 3, 2});
  check_convolution({.stride = 2, .groups = 2}, {3, 5, 5, 16}, {16, 3, 3, 8});
  check_convolution({.padding = Padding::kValid, .dilation = 2, .groups = 3}, {3, 7, 6, 6},
                    {9, 3, 2, 2});
}

TEST(Conv2d, KeepsItsContractForDepthwiseFilters) {
  check_convolution({.groups = 16}, {3, 6, 5, 16}, {16, 3, 3, 1});
  check_convolution({.stride = 2, .groups = 6}, {3, 7, 6, 6}, {12, 3, 3, 1});
  check_convolution({.dilation = 2, .groups = 5}, {3, 6, 5, 5}, {5, 3, 3, 1});
}

void check_gradients(Conv2dOptions options, Shape image, Shape filter, Shape output) {
  const Builder twice = [options](Inputs x) {
    return Built(gradients(conv2d(x[0], x[1], options), {x[0], x[1]}, {.initial = {x[2]}}));
  };
  check_op({.build = twice,
            .inputs = {random_values(image), random_values(filter, -1, 1, 2),
                       random_values(output, -1, 1, 3)},
            .f32 = 2e-6,
            .library = true,
            .nan = false,
            .unknown = false});
}

TEST(Conv2d, GradientsHaveGradients) {
  check_gradients({.stride = 2}, {2, 5, 4, 3}, {4, 3, 3, 3}, {2, 3, 2, 4});
  check_gradients({.dilation = 2, .groups = 2}, {2, 5, 4, 4}, {6, 3, 2, 2}, {2, 5, 4, 6});
  check_gradients({.stride = {2, 1}, .padding = {1, 0, 0, 2}}, {2, 5, 4, 3}, {4, 3, 2, 3},
                  {2, 2, 5, 4});
}

// Winograd's algorithm computes calls of this size where the library has it. Its tiles do not
// divide these images.
TEST(Conv2d, GradientsOfLargeCallsAreExact) {
  const std::vector<Tensor> operands{random_values({2, 37, 61, 48}),
                                     random_values({48, 3, 3, 48}, -1, 1, 2)};
  for (const Padding& padding :
       {Padding(1), Padding(0), Padding(0, 1), Padding(2), Padding(0, 1, 1, 0)}) {
    std::vector<Tensor> inputs = operands;
    inputs.push_back(
        random_values(compute(convolution({.padding = padding}), operands).shape(), -1, 1, 3));
    std::vector<Tensor> wide;
    for (const Tensor& input : inputs) wide.push_back(to(input, DType::kF64));
    for (const std::size_t of : {0u, 1u}) {
      const Builder gradient = [&](Inputs x) {
        const Output y = conv2d(x[0], x[1], {.padding = padding});
        return gradients(y, {x[of]}, {.initial = {x[2]}})[0];
      };
      const Tensor got = to(compute(gradient, inputs), DType::kF64);
      EXPECT_LE(difference(got, compute(gradient, wide)), 4e-6)
          << "of input " << of << " with " << NodeOptions(Conv2dOptions{.padding = padding}).str();
    }
  }
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

TEST(Conv2d, RefusesChannelsThatGroupsDoNotDivide) {
  expect_refused(convolution({.groups = 2}), {{{1, 8, 8, 3}}, {{4, 3, 3, 1}}},
                 "3 channels of the image cannot be divided into groups of one size; 2 groups");
  expect_refused(convolution({.groups = 2}), {{{1, 8, 8, 4}}, {{3, 3, 3, 2}}},
                 "3 channels of the output cannot be divided into groups of one size; 2 groups");
  expect_refused(convolution({.groups = 0}), {{{1, 8, 8, 4}}, {{4, 3, 3, 4}}},
                 "groups must be at least 1, not 0");
  expect_refused(convolution({.groups = 2}), {{{1, 8, 8, 4}}, {{4, 3, 3, 4}}},
                 "channels of a group of image [n,h,w,in] and filter [out,kh,kw,in/groups] differ");
}

TEST(Conv2d, RefusesDilatedFiltersLargerThanTheImage) {
  expect_refused(
      convolution({.padding = Padding::kValid, .dilation = 3}), {{{1, 6, 8, 3}}, {{4, 3, 3, 3}}},
      "a window of 3 with dilation 3, which is 7 pixels, does not fit an image of height "
      "6");
  expect_refused(convolution({.dilation = 0}), {{{1, 6, 8, 3}}, {{4, 3, 3, 3}}},
                 "dilation must be at least 1, not 0");
}

TEST(Conv2d, RefusesFiltersLargerThanTheImage) {
  expect_refused(convolution({.padding = Padding::kValid}), {{{1, 2, 8, 3}}, {{4, 3, 3, 3}}},
                 "a window of 3 does not fit an image of height 2");
  expect_refused(convolution({.padding = {0, 0, 2, 1}}), {{{1, 8, 2, 3}}, {{4, 6, 6, 3}}},
                 "a window of 6 does not fit an image of width 2 with a padding of 2 before and 1 "
                 "after; use Padding::kSame or a larger image");
}

TEST(Conv2d, RefusesNegativePadding) {
  expect_refused(convolution({.padding = {0, -1}}), {{{1, 8, 8, 3}}, {{4, 3, 3, 3}}},
                 "padding must not be negative, but the width has -1 before and -1 after");
}

TEST(Conv2d, RefusesGradientsForImagesOfUnknownSize) {
  expect_refused([](Inputs x) { return Built(gradients(conv2d(x[0], x[1]), {x[0]})); },
                 {{{1, kUnknownSize, 8, 3}}, {{4, 3, 3, 3}}},
                 "give the placeholder a height and width");
}

}  // namespace conv2d_test
}  // namespace belfry
