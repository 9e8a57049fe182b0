#include "belfry/ops/linear_algebra/fft.h"

#include <cmath>
#include <complex>
#include <numbers>

#include <gtest/gtest.h>

#include "belfry/ops/operand.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace fft_test {

using TransformFunction = Output (*)(Output, FftOptions, At);

Builder of(TransformFunction transform, FftOptions options = {}) {
  return [=](Inputs x) { return transform(x[0], options, {}); };
}

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }

void expect_near(const Tensor& actual, const Tensor& expected, double tolerance = 1e-6) {
  EXPECT_EQ(actual.shape(), expected.shape());
  EXPECT_LE(difference(actual, expected), tolerance) << actual.str() << "\ninstead of\n"
                                                     << expected.str();
}

TEST(Fft, OfFourNumbers) {
  const Tensor x = floats({4, 2}, {1, 0, 2, 0, 3, 0, 4, 0});
  const Tensor y = floats({4, 2}, {10, 0, -2, 2, -2, 0, -2, -2});
  expect_near(compute(of(fft), {x}), y);
  expect_near(compute(of(ifft), {y}), x);
}

TEST(RealFft, HasTheFirstHalfOfTheFrequencies) {
  const Tensor x = floats({4}, {1, 2, 3, 4});
  const Tensor y = floats({3, 2}, {10, 0, -2, 2, -2, 0});
  expect_near(compute(of(rfft), {x}), y);
  expect_near(compute(of(irfft), {y}), x);
}

TEST(InverseRealFft, DropsImaginaryPartsThatRealNumbersLack) {
  const Tensor y = floats({3, 2}, {10, 7, -2, 2, -2, -5});
  expect_near(compute(of(irfft), {y}), floats({4}, {1, 2, 3, 4}));
}

TEST(InverseRealFft, GivesOddNumbersOnRequest) {
  expect_near(compute(of(irfft, {.n = 5}), {compute(of(rfft), {floats({5}, {3, 1, 4, 1, 5})})}),
              floats({5}, {3, 1, 4, 1, 5}));
}

// As torch.fft with n: cut, or with zeros at the end.
TEST(Fft, CutsAndPads) {
  const Tensor x = floats({4}, {1, 2, 3, 4});
  expect_near(compute(of(rfft, {.n = 2}), {x}), floats({2, 2}, {3, 0, -1, 0}));
  expect_near(compute(of(rfft, {.n = 6}), {x}),
              compute(of(rfft), {floats({6}, {1, 2, 3, 4, 0, 0})}));
  const Tensor z = floats({2, 2}, {1, 2, 3, 4});
  expect_near(compute(of(fft, {.n = 1}), {z}), floats({1, 2}, {1, 2}));
  expect_near(compute(of(fft, {.n = 3}), {z}),
              compute(of(fft), {floats({3, 2}, {1, 2, 3, 4, 0, 0})}));
}

TEST(Fft, TransformsAnyAxis) {
  const Tensor x = floats({2, 2, 2}, {1, 0, 2, 0, 3, 0, 5, 0});
  expect_near(compute(of(fft, {.axis = 0}), {x}), floats({2, 2, 2}, {4, 0, 7, 0, -2, 0, -3, 0}));
  expect_near(compute(of(fft, {.axis = -2}), {x}), compute(of(fft, {.axis = 0}), {x}));
  const Tensor real = floats({2, 2}, {1, 2, 3, 5});
  expect_near(compute(of(rfft, {.axis = 0}), {real}),
              floats({2, 2, 2}, {4, 0, 7, 0, -2, 0, -3, 0}));
  expect_near(compute(of(irfft, {.axis = 0}), {compute(of(rfft, {.axis = 0}), {real})}), real);
}

TEST(Fft, IsScaledByTheNorm) {
  const Tensor x = floats({4, 2}, {1, 0, 2, 0, 3, 0, 4, 0});
  const auto first = [&](TransformFunction transform, FftNorm norm) {
    return doubles(compute(of(transform, {.norm = norm}), {x}))[0];
  };
  EXPECT_EQ(first(fft, FftNorm::kBackward), 10);
  EXPECT_EQ(first(fft, FftNorm::kForward), 2.5);
  EXPECT_EQ(first(fft, FftNorm::kOrtho), 5);
  EXPECT_EQ(first(ifft, FftNorm::kBackward), 2.5);
  EXPECT_EQ(first(ifft, FftNorm::kForward), 10);
  EXPECT_EQ(first(ifft, FftNorm::kOrtho), 5);
}

TEST(Fft, KeepsItsContract) {
  const auto check = [](TransformFunction transform, FftOptions options, const Shape& x) {
    check_op({.build = of(transform, options),
              .inputs = {random_values(x)},
              .f64 = 1e-14,
              .unknown = x.rank() > 2 && options.axis != 0});
  };
  for (const TransformFunction transform : {fft, ifft}) {
    check(transform, {}, {5, 4, 2});
    check(transform, {.norm = FftNorm::kOrtho}, {2, 3, 7, 2});
    check(transform, {.n = 3, .axis = 1}, {3, 4, 2, 2});
    check(transform, {}, {1, 2});
  }
  check_op({.build = of(rfft), .inputs = {random_values({3, 1})}, .nan = false});  // its y is real
  for (const std::int64_t n : {1, 2, 3, 4, 7, 14}) {
    if (n > 1) check(rfft, {}, {3, n});
    check(irfft, {.n = n}, {3, n / 2 + 1, 2});
  }
  check(rfft, {.n = 6, .axis = 1, .norm = FftNorm::kForward}, {3, 5, 2});
  check(irfft, {.axis = 0}, {4, 3, 2});
}

// Sizes that the library transforms itself, and others: both agree with sums, and come back.
TEST(Fft, TakesAllSizes) {
  for (const std::int64_t n : {6, 8, 15, 25, 28, 60, 97, 128, 210, 243, 251})
    for (const TransformFunction transform : {fft, ifft, rfft}) {
      const Shape shape = transform == rfft ? Shape{2, n} : Shape{2, n, 2};
      check_op({.build = of(transform),
                .inputs = {random_values(shape)},
                .f64 = 1e-14 * std::sqrt(static_cast<double>(n)),
                .gradient = -1,
                .nan = false});
      const TransformFunction back = transform == fft ? ifft : transform == ifft ? fft : irfft;
      const Tensor x = to(random_values(shape), DType::kF64);
      expect_near(
          compute([&](Inputs xs) { return back(transform(xs[0], {}, {}), {.n = n}, {}); }, {x}), x,
          1e-14);
    }
}

// f32 is transformed in f64 and rounded once.
TEST(Fft, IsExactForLongLines) {
  const Tensor x = random_values({1, 1 << 14});
  const Tensor y = compute(of(rfft), {x}), exact = compute(of(rfft), {to(x, DType::kF64)});
  EXPECT_EQ(y, to(exact, DType::kF32));
}

TEST(Fft, RefusesOtherShapesAndTypes) {
  expect_refused(of(fft), {{{4, 3}}}, "f32[4,3] is not complex; the last axis has to have size 2");
  expect_refused(of(fft), {{{2}}}, "has no axis -1 besides that of the parts of numbers");
  expect_refused(of(rfft, {.axis = 1}), {{{4}}}, "f32[4] has no axis 1");
  expect_refused(of(rfft), {{{kUnknownSize}}}, "must have a known size, and not 0");
  expect_refused(of(rfft, {.n = -3}), {{{4}}}, "the size n is -3");
  expect_refused(of(irfft), {{{1, 2}}}, "one frequency does not say how many numbers there are");
  expect_refused(of(rfft), {{{4, 4}, DType::kF16}}, "takes f32 and f64, not f16; use cast");
}

TEST(ComplexMul, MultipliesNumbers) {
  const Builder product = [](Inputs x) { return complex_mul(x[0], x[1]); };
  EXPECT_EQ(compute(product, {floats({2, 2}, {1, 2, 3, 4}), floats({2}, {0, 1})}),
            floats({2, 2}, {-2, 1, -4, 3}));
  check_op(
      {.build = product, .inputs = {random_values({3, 4, 2}), random_values({3, 4, 2}, -1, 1, 2)}});
  expect_refused(product, {{{4}}, {{2}}}, "f32[4] is not complex");
}

// The derivative of a periodic function is a product with i k.
TEST(Fft, DifferentiatesPeriodicFunctions) {
  constexpr int kPoints = 24;
  Tensor x({kPoints}, DType::kF64), expected({kPoints}, DType::kF64);
  Tensor factors({kPoints / 2 + 1, 2}, DType::kF64);
  for (std::int64_t i = 0; i < kPoints; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / kPoints;
    const auto at = static_cast<std::size_t>(i);
    x.mutable_data<double>()[at] = std::exp(std::sin(angle));
    expected.mutable_data<double>()[at] = std::cos(angle) * std::exp(std::sin(angle));
  }
  for (std::size_t k = 0; k <= kPoints / 2; ++k) {
    factors.mutable_data<double>()[2 * k] = 0;
    factors.mutable_data<double>()[2 * k + 1] = static_cast<double>(k);
  }
  const Builder derivative = [](Inputs xs) { return irfft(complex_mul(rfft(xs[0]), xs[1])); };
  expect_near(compute(derivative, {x, factors}), expected, 1e-9);
}

}  // namespace fft_test
}  // namespace belfry
