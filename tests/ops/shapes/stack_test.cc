#include "belfry/ops/shapes/stack.h"

#include <gtest/gtest.h>

#include "belfry/ops/arithmetic.h"
#include "belfry/ops/shapes/move_axes.h"
#include "belfry/ops/shapes/space_to_depth.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace stack_test {

const Tensor kFirst({2, 2}, std::vector<float>{1, 2, 3, 4});
const Tensor kSecond({2, 2}, std::vector<float>{5, 6, 7, 8});

Builder stacked(int axis) {
  return [=](Inputs x) { return stack(x, axis); };
}

TEST(Stack, MakesAnAxis) {
  EXPECT_EQ(compute(stacked(0), {kFirst, kSecond}),
            Tensor({2, 2, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(compute(stacked(1), {kFirst, kSecond}),
            Tensor({2, 2, 2}, std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}));
  EXPECT_EQ(compute(stacked(-1), {kFirst, kSecond}),
            Tensor({2, 2, 2}, std::vector<float>{1, 5, 2, 6, 3, 7, 4, 8}));
  EXPECT_EQ(compute(stacked(0), {kFirst}), Tensor({1, 2, 2}, std::vector<float>{1, 2, 3, 4}));
}

TEST(Unstack, UndoesStack) {
  for (const int axis : {0, 1, 2, -1}) {
    const Builder back = [=](Inputs x) { return unstack(stack(x, axis), axis)[1]; };
    EXPECT_EQ(compute(back, {kFirst, kSecond}), kSecond);
  }
  EXPECT_EQ(compute([](Inputs x) { return unstack(x[0])[0]; },
                    {Tensor({1, 2}, std::vector<float>{1, 2})}),
            Tensor({2}, std::vector<float>{1, 2}));
}

TEST(Stack, HasGradients) {
  const Builder build = [](Inputs x) {
    const std::vector<Output> parts = unstack(stack(x, 1), -1);
    return mul(parts[0], parts[1]);
  };
  check_op(
      {.build = build, .inputs = {random_values({4, 2}), random_values({4, 2})}, .nan = false});
}

TEST(Stack, RefusesDifferentShapes) {
  expect_refused(stacked(0), {{{2, 2}}, {{2, 3}}}, "f32[2,2] and f32[2,3] have different shapes");
  expect_refused([](Inputs) { return stack(std::span<const Output>()); }, {}, "nothing to stack");
  expect_refused([](Inputs x) { return unstack(x[0], 2)[0]; }, {{{2, 2}}}, "has no axis 2");
  expect_refused([](Inputs x) { return unstack(x[0])[0]; }, {{{kUnknownSize, 2}}},
                 "the size of axis 0 of f32[?,2] must be known, and not 0");
}

TEST(MoveAxes, PutsThemWhereTheyShallBe) {
  const Tensor x({1, 2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(compute([](Inputs in) { return swapaxes(in[0], 0, -1); }, {x}),
            Tensor({3, 2, 1}, std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(compute([](Inputs in) { return moveaxis(in[0], 0, -1); }, {x}),
            Tensor({2, 3, 1}, std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(compute([](Inputs in) { return moveaxis(in[0], 2, 0); }, {x}),
            Tensor({3, 1, 2}, std::vector<float>{1, 4, 2, 5, 3, 6}));
  expect_refused([](Inputs in) { return swapaxes(in[0], 0, 2); }, {{{2, 3}}},
                 "f32[2,3] has no axis 2");
  expect_refused([](Inputs in) { return moveaxis(in[0], -3, 0); }, {{{2, 3}}}, "has no axis -3");
}

// tf.nn.space_to_depth of 0 .. 15, and torch.nn.functional.pixel_unshuffle of two channels.
TEST(SpaceToDepth, MakesChannelsOfPixels) {
  std::vector<float> digits(16);
  for (std::size_t i = 0; i < 16; ++i) digits[i] = static_cast<float>(i);
  const Builder depth = [](Inputs x) { return space_to_depth(x[0], 2); };
  const Builder unshuffled = [](Inputs x) { return pixel_unshuffle(x[0], 2); };
  EXPECT_EQ(compute(depth, {Tensor({1, 4, 4, 1}, digits)}),
            Tensor({1, 2, 2, 4},
                   std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  const Tensor pairs({1, 2, 4, 2}, digits);
  EXPECT_EQ(compute(depth, {pairs}),
            Tensor({1, 1, 2, 8},
                   std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15}));
  EXPECT_EQ(compute(unshuffled, {pairs}),
            Tensor({1, 1, 2, 8},
                   std::vector<float>{0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15}));
}

TEST(SpaceToDepth, IsUndone) {
  const Tensor x = random_values({2, 4, 6, 3});
  EXPECT_EQ(compute([](Inputs in) { return depth_to_space(space_to_depth(in[0], 2), 2); }, {x}), x);
  EXPECT_EQ(compute([](Inputs in) { return pixel_shuffle(pixel_unshuffle(in[0], 2), 2); }, {x}), x);
  check_op({.build = [](Inputs in) { return depth_to_space(in[0], 2); },
            .inputs = {random_values({3, 2, 1, 8})}});
}

TEST(SpaceToDepth, RefusesBlocksThatDoNotFit) {
  expect_refused([](Inputs x) { return space_to_depth(x[0], 2); }, {{{1, 4, 5, 1}}},
                 "blocks of 2 pixels do not divide f32[1,4,5,1]");
  expect_refused([](Inputs x) { return pixel_shuffle(x[0], 2); }, {{{1, 4, 4, 6}}},
                 "blocks of 2 pixels do not divide the 6 channels");
  expect_refused([](Inputs x) { return depth_to_space(x[0], 0); }, {{{1, 4, 4, 6}}},
                 "blocks of 0 pixels");
  expect_refused([](Inputs x) { return depth_to_space(x[0], 2); }, {{{4, 4, 6}}},
                 "needs images [N,H,W,C], not f32[4,4,6]");
  expect_refused([](Inputs x) { return depth_to_space(x[0], 2); }, {{{4, kUnknownSize, 4, 4}}},
                 "but the first must be known");
}

}  // namespace stack_test
}  // namespace belfry
