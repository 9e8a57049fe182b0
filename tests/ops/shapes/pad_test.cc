#include "belfry/ops/shapes/pad.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace pad_test {

Builder padded(std::vector<AxisPads> pads, PadOptions options = {}) {
  return [=](Inputs x) { return pad(x[0], pads, options); };
}

std::vector<double> pad_row(PadOptions options, std::int64_t before, std::int64_t after) {
  const Tensor row({4}, std::vector<float>{1, 2, 3, 4});
  return doubles(compute(padded({{before, after}}, options), {row}));
}

TEST(Pad, ShowsConstantsMirrorsEdgesOrRepetitions) {
  EXPECT_EQ(pad_row({}, 1, 2), (std::vector<double>{0, 1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(pad_row({.value = -1.5}, 2, 0), (std::vector<double>{-1.5, -1.5, 1, 2, 3, 4}));
  EXPECT_EQ(pad_row({.mode = PadMode::kReflect}, 3, 2),
            (std::vector<double>{4, 3, 2, 1, 2, 3, 4, 3, 2}));
  EXPECT_EQ(pad_row({.mode = PadMode::kEdge}, 2, 1), (std::vector<double>{1, 1, 1, 2, 3, 4, 4}));
  EXPECT_EQ(pad_row({.mode = PadMode::kWrap}, 1, 5),
            (std::vector<double>{4, 1, 2, 3, 4, 1, 2, 3, 4, 1}));
}

TEST(Pad, PadsSeveralAxes) {
  const Tensor x({2, 2}, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(compute(padded({{1, 0}, {0, 1}}, {.value = 9}), {x}),
            Tensor({3, 3}, std::vector<float>{9, 9, 9, 1, 2, 9, 3, 4, 9}));
  EXPECT_EQ(compute(padded({{1, 0}, {0, 1}}, {.mode = PadMode::kReflect}), {x}),
            Tensor({3, 3}, std::vector<float>{3, 4, 3, 1, 2, 1, 3, 4, 3}));
}

TEST(Pad, PadsEveryType) {
  const Tensor ids({2}, std::vector<std::int64_t>{5, 6});
  EXPECT_EQ(compute(padded({{1, 1}}, {.value = -1}), {ids}),
            Tensor({4}, std::vector<std::int64_t>{-1, 5, 6, -1}));
  const Tensor flags({2}, std::vector<bool>{false, false});
  EXPECT_EQ(compute(padded({{0, 1}}, {.value = 1}), {flags}),
            Tensor({3}, std::vector<bool>{false, false, true}));
  const Tensor bytes({1}, std::vector<std::uint8_t>{7});
  EXPECT_EQ(compute(padded({{1, 1}}), {bytes}), Tensor({3}, std::vector<std::uint8_t>{0, 7, 0}));
}

TEST(Pad, KeepsItsContract) {
  for (const PadMode mode :
       {PadMode::kConstant, PadMode::kReflect, PadMode::kEdge, PadMode::kWrap}) {
    const PadOptions options{.mode = mode, .value = 0.5};
    const bool nan = mode != PadMode::kConstant;
    check_op({.build = padded({{}, {2, 1}, {1, 2}, {}}, options),
              .inputs = {random_values({7, 4, 3, 5})},
              .nan = nan});
    check_op({.build = padded({{1, 2}, {0, 3}}, options),
              .inputs = {random_values({5, 4})},
              .nan = nan});
    check_op({.build = padded({{3, 2}}, options), .inputs = {random_values({9})}, .nan = nan});
  }
}

TEST(Pad, RefusesWhatItCannotShow) {
  expect_refused(padded({{-1, 0}}), {{{3}}}, "-1 or 0 is negative; slice the tensor instead");
  expect_refused(padded({{1, 0}}), {{{3, 4}}}, "1 pairs for f32[3,4], which needs one per axis");
  expect_refused(padded({{}, {4, 0}}, {.mode = PadMode::kReflect}), {{{3, 4}}},
                 "mirrors 4 and 0 elements of axis 1 of [3,4], but it has only 3 beside its edge");
  expect_refused(padded({{1, 0}}, {.mode = PadMode::kEdge}), {{{0}}}, "has nothing to repeat");
}

}  // namespace pad_test
}  // namespace belfry
