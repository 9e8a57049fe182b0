#include "belfry/ops/attention/rotary_embedding.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace rotary_embedding_test {

Builder rotation(RotaryEmbeddingOptions options = {}) {
  return [=](Inputs x) { return rotary_embedding(x[0], options); };
}

// Two pairs: (1, 3) turns by t radians, (2, 4) by t / sqrt(base) = t / 2.
TEST(RotaryEmbedding, TurnsPairsOfBothHalvesByTheTime) {
  const Tensor x({1, 3, 4}, std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4});
  const std::vector<double> y = doubles(compute(rotation({.base = 4}), {x}));
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 2; ++i) {
      const double angle = i == 0 ? t : t / 2.0, low = 1 + i, high = 3 + i;
      const std::size_t at = static_cast<std::size_t>(4 * t + i);
      EXPECT_NEAR(y[at], low * std::cos(angle) - high * std::sin(angle), 1e-15) << t << i;
      EXPECT_NEAR(y[at + 2], high * std::cos(angle) + low * std::sin(angle), 1e-15) << t << i;
    }
}

TEST(RotaryEmbedding, TurnsEachHeadAndSampleAlike) {
  Tensor x({2, 2, 4}, DType::kF32);
  for (std::size_t i = 0; i < 16; i += 2) x.mutable_data<float>()[i] = 1;
  const std::vector<double> y = doubles(compute(rotation({.heads = 2}), {x}));
  for (std::size_t i = 0; i < 16; i += 2) {
    const double angle = i / 4 % 2;
    EXPECT_NEAR(y[i], std::cos(angle), 1e-7) << i;
    EXPECT_NEAR(y[i + 1], std::sin(angle), 1e-7) << i;
  }
}

// At late times an angle in f32 would be wrong in the third digit.
TEST(RotaryEmbedding, IsAccurateForLateTimes) {
  constexpr std::int64_t kTime = 20000;
  Tensor x({1, kTime, 2}, DType::kF32);
  for (std::int64_t t = 0; t < kTime; ++t)
    x.mutable_data<float>()[static_cast<std::size_t>(2 * t)] = 1;
  const std::vector<double> y = doubles(compute(rotation(), {x}));
  for (std::int64_t t = 0; t < kTime; t += 7)
    EXPECT_NEAR(y[static_cast<std::size_t>(2 * t)], std::cos(static_cast<double>(t)), 1e-7) << t;
}

TEST(RotaryEmbedding, KeepsItsContract) {
  struct {
    Shape shape;
    RotaryEmbeddingOptions options;
  } const cases[] = {{{3, 1, 2}, {}},
                     {{2, 5, 12}, {.heads = 2, .base = 100}},
                     {{3, 4, 34}, {.inverse = true}},
                     {{1, 3, 516}, {}}};  // more pairs than are computed at once
  for (const auto& [shape, options] : cases) {
    SCOPED_TRACE(shape.str());
    check_op({.build = rotation(options),
              .inputs = {random_values(shape)},
              .gradient = shape.elements() < 500 ? 1e-6 : -1});
  }
}

TEST(RotaryEmbedding, HasTheInverseRotationAsGradient) {
  const Builder back = [](Inputs x) {
    const Output y = rotary_embedding(x[0], {.heads = 2});
    return gradients(y, {x[0]}, {.initial = {y}})[0];
  };
  const Tensor x = random_values({2, 7, 8});
  EXPECT_LE(difference(compute(back, {x}), x), 2e-7);
}

TEST(RotaryEmbedding, OfNothingIsNothing) {
  for (const Shape& shape : {Shape{0, 5, 4}, Shape{2, 0, 4}, Shape{2, 5, 0}})
    EXPECT_EQ(compute(rotation({.heads = 2}), {Tensor(shape, DType::kF32)}).shape(), shape);
}

TEST(RotaryEmbedding, RefusesHeadsWithoutPairs) {
  const TensorType x{{2, 5, 6}};
  expect_refused(rotation({.heads = 2}), {x},
                 "2 heads of an even number of columns do not fit the width of [2,5,6]");
  expect_refused(rotation({.heads = 0}), {x}, "needs at least 1 head, not 0");
  expect_refused(rotation({.base = 0}), {x}, "the base must be positive");
  expect_refused(rotation(), {{{5, 6}}}, "RotaryEmbedding 'RotaryEmbedding'");
  expect_refused(rotation(), {{{2, 5, 6}, DType::kI32}}, "RotaryEmbedding");
}

}  // namespace rotary_embedding_test
}  // namespace belfry
