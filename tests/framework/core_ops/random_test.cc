// The distributions of random numbers, and that each is a function of its index alone.
#include "belfry/framework/core_ops/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/kernels/counter.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace random_test {

constexpr std::int64_t kSample = 1'000'000;

double normal_cdf(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }
double uniform_cdf(double x) { return x; }

// The statistic of Kolmogorov and Smirnov: the largest distance between the sample's distribution
// and the exact one, in units of 1 / sqrt(n). One sample in a thousand exceeds 1.95.
double distance(std::vector<double> sample, double (*cdf)(double)) {
  std::ranges::sort(sample);
  const auto n = static_cast<double>(sample.size());
  double largest = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double exact = cdf(sample[i]), rank = static_cast<double>(i);
    largest = std::max({largest, exact - rank / n, (rank + 1) / n - exact});
  }
  return largest * std::sqrt(n);
}

// The correlation of elements that are `lag` apart, in units of its standard error.
double correlation(const std::vector<double>& sample, double mean, double variance,
                   std::size_t lag) {
  double sum = 0;
  for (std::size_t i = lag; i < sample.size(); ++i)
    sum += (sample[i] - mean) * (sample[i - lag] - mean);
  return sum / variance / std::sqrt(static_cast<double>(sample.size() - lag));
}

class RandomOps : public ::testing::TestWithParam<DType> {
 protected:
  Graph graph;
};
INSTANTIATE_TEST_SUITE_P(Types, RandomOps, ::testing::Values(DType::kF32, DType::kF64),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(RandomOps, AreDistributedAsTheirNamesSay) {
  const auto normal = doubles(evaluate(random_normal(graph, {kSample}, 1, GetParam())));
  const auto uniform = doubles(evaluate(random_uniform(graph, {kSample}, 0, 1, GetParam())));
  EXPECT_LT(distance(normal, normal_cdf), 1.95);
  EXPECT_LT(distance(uniform, uniform_cdf), 1.95);
  for (const std::size_t lag : {1, 2, 7, 64}) {
    EXPECT_LT(std::abs(correlation(normal, 0, 1, lag)), 4) << lag;
    EXPECT_LT(std::abs(correlation(uniform, 0.5, 1. / 12, lag)), 4) << lag;
  }
}

// In all but a thousandth of samples, the largest of ten million numbers lies between these limits.
TEST_P(RandomOps, NormalNumbersHaveTails) {
  double largest = 0;
  std::int64_t beyond_three = 0;
  const auto sample = doubles(evaluate(random_normal(graph, {10 * kSample}, 1, GetParam())));
  for (const double z : sample) {
    ASSERT_TRUE(std::isfinite(z));
    largest = std::max(largest, std::abs(z));
    beyond_three += std::abs(z) > 3;
  }
  EXPECT_GT(largest, 4.9);
  EXPECT_LT(largest, 6.5);
  EXPECT_NEAR(static_cast<double>(beyond_three), 26998, 5 * std::sqrt(26998.0));
}

// Of a normal variable, given that it lies within two deviations.
double truncated_cdf(double z) {
  return (normal_cdf(z) - normal_cdf(-2)) / (normal_cdf(2) - normal_cdf(-2));
}

TEST_P(RandomOps, TruncatedNumbersStayWithinTwoDeviations) {
  const auto sample = doubles(evaluate(init::truncated_normal(1)(graph, {kSample}, GetParam())));
  EXPECT_GE(std::ranges::min(sample), -2);
  EXPECT_LE(std::ranges::max(sample), 2);
  EXPECT_LT(distance(sample, truncated_cdf), 1.95);
}

TEST_P(RandomOps, GiveTheBitsOfPlainLoops) {
  for (const Output& x : {random_normal(graph, {1001}, 2, GetParam()),
                          init::truncated_normal(2)(graph, {1001}, GetParam()),
                          random_uniform(graph, {1001}, -1, 3, GetParam())})
    EXPECT_EQ(evaluate(x), evaluate(x, {}, {.reference = true}));
}

// Loops for single instruction sets, beside the one that is chosen for this machine.
#if defined(__x86_64__) && !defined(__clang__)
#define BELFRY_ON(arch) [[gnu::target(arch)]]
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() { return has_avx2() && __builtin_cpu_supports("avx512dq"); }
#else
#define BELFRY_ON(arch)
bool has_avx2() { return true; }
bool has_avx512() { return true; }
#endif
template <class Draw, class T>
void draw_on_baseline(Draw draw, std::vector<T>& y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = draw.template number<T>(7, 3, i);
}
template <class Draw, class T>
BELFRY_ON("arch=x86-64-v3")
void draw_on_avx2(Draw draw, std::vector<T>& y) {
  T* const to = y.data();
  for (std::size_t i = 0, n = y.size(); i < n; ++i) to[i] = draw.template number<T>(7, 3, i);
}
template <class Draw, class T>
BELFRY_ON("arch=x86-64-v4")
void draw_on_avx512(Draw draw, std::vector<T>& y) {
  T* const to = y.data();
  for (std::size_t i = 0, n = y.size(); i < n; ++i) to[i] = draw.template number<T>(7, 3, i);
}

template <class Draw, class T>
void expect_same_bits_everywhere(Draw draw) {
  std::vector<T> baseline(100'003), other(baseline.size());
  const auto expect_same = [&](const char* where) {
    EXPECT_EQ(std::memcmp(baseline.data(), other.data(), baseline.size() * sizeof(T)), 0) << where;
  };
  draw_on_baseline(draw, baseline);
  if (has_avx2()) draw_on_avx2(draw, other), expect_same("AVX2");
  if (has_avx512()) draw_on_avx512(draw, other), expect_same("AVX-512");
}

TEST(RandomNumbers, HaveTheSameBitsOnEveryInstructionSet) {
  expect_same_bits_everywhere<functors::Normal, float>({0.3});
  expect_same_bits_everywhere<functors::Normal, double>({0.3});
  expect_same_bits_everywhere<functors::Uniform, float>({-0.1, 0.7});
  expect_same_bits_everywhere<functors::Uniform, double>({-0.1, 0.7});
}

TEST(RandomNumbers, HaveARange) {
  Graph graph;
  EXPECT_THAT([&] { random_normal(graph, {2}, -1); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(
                  "the standard deviation must be a finite number >= 0, not -1")));
  EXPECT_THAT([&] { random_uniform(graph, {2}, 1, 0); },
              testing::ThrowsMessage<InvalidArgument>(
                  testing::HasSubstr("numbers from 1 to 0 cannot be drawn")));
}

TEST(RandomNumbers, UnitsAreExact) {
  for (const std::uint64_t bits :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 11, std::uint64_t{1} << 43,
        (std::uint64_t{1} << 43) - 1, std::uint64_t{0x123456789abcdef0}})
    EXPECT_EQ(kernels::unit(bits), std::ldexp(static_cast<double>(bits >> 11), -53)) << bits;
}

}  // namespace random_test
}  // namespace belfry
