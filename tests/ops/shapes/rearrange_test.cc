#include "belfry/ops/shapes/rearrange.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace rearrange_test {

using Numbers = std::vector<std::int64_t>;
using Axes = std::vector<int>;

const Tensor& six() {
  static const Tensor tensor({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  return tensor;
}

std::vector<double> of_six(const Builder& build) { return doubles(compute(build, {six()})); }

TEST(Flip, ReversesAxes) {
  EXPECT_EQ(of_six([](Inputs x) { return flip(x[0]); }), (std::vector<double>{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(of_six([](Inputs x) { return flip(x[0], {-1}); }),
            (std::vector<double>{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(of_six([](Inputs x) { return flip(x[0], {0}); }),
            (std::vector<double>{4, 5, 6, 1, 2, 3}));
}

TEST(Roll, MovesElementsAround) {
  EXPECT_EQ(of_six([](Inputs x) { return roll(x[0], 1, 1); }),
            (std::vector<double>{3, 1, 2, 6, 4, 5}));
  EXPECT_EQ(of_six([](Inputs x) { return roll(x[0], -4, -1); }),
            (std::vector<double>{2, 3, 1, 5, 6, 4}));
  EXPECT_EQ(of_six([](Inputs x) {
              return roll(x[0], Numbers{1, 1, 1}, Axes{0, 1, 1});
            }),
            (std::vector<double>{5, 6, 4, 2, 3, 1}));
}

TEST(Tile, RepeatsTheWhole) {
  EXPECT_EQ(of_six([](Inputs x) { return tile(x[0], {2}); }),
            (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(compute(
                [](Inputs x) {
                  return tile(x[0], {2, 1, 2});
                },
                {Tensor({1, 2}, std::vector<float>{1, 2})}),
            Tensor({2, 1, 4}, std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2}));
}

TEST(RepeatElements, RepeatsEach) {
  EXPECT_EQ(of_six([](Inputs x) { return repeat_elements(x[0], 2, 1); }),
            (std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}));
  EXPECT_EQ(of_six([](Inputs x) { return repeat_elements(x[0], 2, 0); }),
            (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
}

TEST(StridedSlice, TakesWhatPythonTakes) {
  const Tensor ten({10}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto cut = [&](AxisSlice slice) {
    return doubles(compute([=](Inputs x) { return strided_slice(x[0], {slice}); }, {ten}));
  };
  EXPECT_EQ(cut({.begin = 1, .end = 8, .step = 3}), (std::vector<double>{1, 4, 7}));
  EXPECT_EQ(cut({.begin = -3}), (std::vector<double>{7, 8, 9}));
  EXPECT_EQ(cut({.end = -8}), (std::vector<double>{0, 1}));
  EXPECT_EQ(cut({.step = -4}), (std::vector<double>{9, 5, 1}));
  EXPECT_EQ(cut({.begin = 2, .end = -20, .step = -1}), (std::vector<double>{2, 1, 0}));
  EXPECT_EQ(cut({.begin = 8, .end = 100, .step = 1}), (std::vector<double>{8, 9}));
  EXPECT_EQ(cut({.begin = 5, .end = 2}), (std::vector<double>{}));
}

void check_rearranged(const Builder& build, Shape shape) {
  check_op({.build = build, .inputs = {random_values(std::move(shape))}});
}

TEST(MapAxes, KeepsItsContract) {
  const Builder builds[] = {
      [](Inputs x) { return flip(x[0], {1}); },
      [](Inputs x) {
        return flip(x[0], {0, 2});
      },
      [](Inputs x) { return roll(x[0], 2, 1); },
      [](Inputs x) {
        return roll(x[0], Numbers{-1, 7}, Axes{0, 2});
      },
      [](Inputs x) {
        return tile(x[0], {1, 2, 3});
      },
      [](Inputs x) {
        return tile(x[0], {2, 1, 1});
      },
      [](Inputs x) { return repeat_elements(x[0], 3, 2); },
      [](Inputs x) { return repeat_elements(x[0], 2, 0); },
  };
  for (const Builder& build : builds) check_rearranged(build, {7, 4, 3});
}

TEST(MapAxes, SlicesKeepTheContract) {
  const auto check = [](std::vector<AxisSlice> slices) {
    check_op({.build = [=](Inputs x) { return strided_slice(x[0], slices); },
              .inputs = {random_values({7, 5, 4})}});
  };
  check({{}, {.step = 2}});
  check({{}, {.begin = 1, .end = 4}, {.begin = -1, .step = -2}});
  check({{.begin = 1, .step = 2}});
}

TEST(MapAxes, IsLeftOutWhereNothingMoves) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, 3});
  EXPECT_EQ(tile(x, {1, 1}), x);
  EXPECT_EQ(roll(x, 0, 1), x);
  EXPECT_EQ(strided_slice(x, {{.begin = 0}}), x);
}

TEST(MapAxes, PrintsItsMaps) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {4, 3});
  EXPECT_NE(flip(x, {1}).node().raw_options().str().find("::-1"), std::string::npos);
  EXPECT_NE(roll(x, 1, 0).node().raw_options().str().find("wrap 1 + -1"), std::string::npos);
}

TEST(Rearranged, RefusesAxesThatAreNotThere) {
  expect_refused([](Inputs x) { return flip(x[0], {2}); }, {{{2, 3}}}, "f32[2,3] has no axis 2");
  expect_refused(
      [](Inputs x) {
        return flip(x[0], {1, -1});
      },
      {{{2, 3}}}, "axis -1 is there twice");
  expect_refused([](Inputs x) { return roll(x[0], 1, -3); }, {{{2, 3}}}, "has no axis -3");
  expect_refused(
      [](Inputs x) {
        return roll(x[0], Numbers{1}, Axes{0, 1});
      },
      {{{2, 3}}}, "1 shifts for 2 axes");
  expect_refused([](Inputs x) { return tile(x[0], {-1}); }, {{{2, 3}}},
                 "a number of times is negative");
  expect_refused([](Inputs x) { return repeat_elements(x[0], -2, 0); }, {{{2, 3}}},
                 "-2 times is negative");
  expect_refused(
      [](Inputs x) {
        return strided_slice(x[0], {{}, {}, {}});
      },
      {{{2, 3}}}, "3 slices for f32[2,3]");
  expect_refused([](Inputs x) { return strided_slice(x[0], {{.step = 0}}); }, {{{2, 3}}},
                 "the step of the slice of axis 0 is 0");
}

}  // namespace rearrange_test
}  // namespace belfry
