#include "belfry/ops/updates/global_norm.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace global_norm_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor vector(std::vector<float> values) {
  return Tensor({static_cast<std::int64_t>(values.size())}, values);
}

double norm_of(const std::vector<Tensor>& tensors) {
  return compute([](Inputs x) { return global_norm(x); }, tensors).item<double>();
}

std::vector<double> clipped(const std::vector<Tensor>& tensors, double max_norm, std::size_t i) {
  return doubles(compute([=](Inputs x) { return clip_by_global_norm(x, max_norm)[i]; }, tensors));
}

TEST(GlobalNorm, IsTheRootOfAllSquares) {
  EXPECT_EQ(norm_of({vector({3, 0}), vector({4})}), 5);
  EXPECT_EQ(norm_of({Tensor(Shape{0}, DType::kF32), Tensor(-2.0f)}), 2);
  // f32 cannot hold these squares.
  EXPECT_EQ(norm_of({vector({3e30f}), Tensor(4e30f)}),
            std::sqrt(double{3e30f} * 3e30f + double{4e30f} * 4e30f));
  EXPECT_TRUE(std::isnan(norm_of({vector({1, kNaN}), vector({1})})));
  EXPECT_EQ(norm_of({vector({static_cast<float>(-kInfinity)}), vector({1})}), kInfinity);
}

TEST(GlobalNorm, IsNearTheExactOneForEverySize) {
  for (const std::int64_t size : {1, 255, 256, 257, 4095, 4096, 4097, 70001, 1100003}) {
    const Tensor x = random_values({size});
    long double exact = 0;
    for (const double value : doubles(x)) exact += value * value;
    const auto sum = static_cast<double>(exact);
    for (const DType dtype : {DType::kF32, DType::kF64})
      EXPECT_NEAR(norm_of({to(x, dtype)}), std::sqrt(sum), 1e-14 * std::sqrt(sum)) << size;
  }
}

// A tensor of 9,000 elements in two parts, cut between blocks; the second one comes first.
TEST(SquaresOfBlocks, AddUpToTheBitsOfTheNorm) {
  const Tensor values = to(random_values({9000}), DType::kF32);
  const std::vector<float> all(values.data<float>().begin(), values.data<float>().end());
  const auto part = [&](std::size_t begin, std::size_t end) {
    return vector({all.begin() + static_cast<std::ptrdiff_t>(begin),
                   all.begin() + static_cast<std::ptrdiff_t>(end)});
  };
  const Tensor other = vector({3, 4});
  const double expected = norm_of({vector(all), other});
  const Tensor norm = compute(
      [](Inputs x) {
        return norm_of_blocks(
            squares_of_blocks(x),
            {.tensor = {0, 1, 0}, .first = {2, 1, 0}, .blocks = {2, 1, 1}, .count = 2});
      },
      {part(8192, 9000), other, part(0, 8192)});
  EXPECT_EQ(norm.item<double>(), expected);
}

TEST(SumsOfBlocks, AreOfBlocksThatThereAre) {
  expect_refused(
      [](Inputs x) {
        return norm_of_blocks(x[0], {{0}, {1}, {2}, 1});
      },
      {{{2}, DType::kF64}}, "has no blocks 1 to 3 of tensor 0");
}

TEST(GlobalNorm, KeepsItsContract) {
  check_op({.build = [](Inputs x) { return global_norm(x); },
            .inputs = {random_values({5, 7}), random_values({3}, -1, 1, 2)},
            .gradient = -1,
            .unknown = false});
}

// Squares and sums are f64 whatever the type, so no bit depends on it.
TEST(GlobalNorm, Of16BitTensorsIsThatOfTheirValues) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::vector<Tensor> halves{to(random_values({5, 1000}), dtype),
                                     to(random_values({3}, -1, 1, 2), dtype)};
    std::vector<Tensor> wide;
    for (const Tensor& half : halves) wide.push_back(to(half, DType::kF32));
    EXPECT_EQ(norm_of(halves), norm_of(wide));
    const auto norm = [](Inputs x) { return global_norm(x); };
    Graph graph;
    std::vector<Output> xs;
    for (const Tensor& half : halves) xs.push_back(constant(graph, half));
    const double plain = evaluate(norm(xs), {}, {.reference = true}).item<double>();
    EXPECT_NEAR(norm_of(halves), plain, 1e-14 * plain);
  }
}

TEST(GlobalNorm, HasTheSameBitsOnAnyDevices) {
  const auto on_devices = [](int devices) {
    Graph graph;
    std::vector<Output> xs;
    for (int i = 0; i < 7; ++i) {
      const DeviceScope on(graph, "/cpu:" + std::to_string(5 * i % devices));
      xs.push_back(
          constant(graph, random_values({1000 * i + 3}, -1, 1, static_cast<unsigned>(i) + 1)));
    }
    const Output norm = global_norm(xs);
    Session session(graph, {.device_count = {{"CPU", devices}}});
    return session.run(norm).item<double>();
  };
  for (const int devices : {2, 3, 4}) EXPECT_EQ(on_devices(devices), on_devices(1)) << devices;
}

TEST(GlobalNorm, NeedsATensor) {
  EXPECT_THROW(global_norm({}), InvalidArgument);
  EXPECT_THROW(clip_by_global_norm({}, 1), InvalidArgument);
}

TEST(GlobalNorm, RefusesIntegers) {
  expect_refused([](Inputs x) { return global_norm(x); }, {{{2}, DType::kI32}}, "SumsOfSquares");
}

TEST(GlobalNorm, RefusesSumsOfSeveralLists) {
  const Builder norm = [](Inputs x) { return x[0].graph().add(kGlobalNorm, x).output(); };
  expect_refused(norm, {{{2}, DType::kF64}, {{3}, DType::kF64}}, "vectors f64 of one size");
  expect_refused(norm, {{{2}}}, "vectors f64 of one size");
}

TEST(SumsOfSquares, RefusesPositionsThatAreNotInOrderOrOutside) {
  const auto at = [](std::vector<int> positions) {
    return Builder([positions](Inputs x) {
      return x[0]
          .graph()
          .add(kSumsOfSquares, x, {}, NodeOptions(SumsOfSquaresOptions{positions, 2}))
          .output();
    });
  };
  expect_refused(at({1, 0}), {{{2}}, {{2}}}, "for each of 2 tensors, in rising order");
  expect_refused(at({0}), {{{2}}, {{2}}}, "for each of 2 tensors, in rising order");
  expect_refused(at({1, 2}), {{{2}}, {{2}}}, "the positions are not in [0, 2)");
}

// A reference kernel for 16 bits would add in another order than GPUs.
TEST(SumsOfSquares, Refuses16Bits) {
  const auto sums = [](Inputs x) {
    return x[0]
        .graph()
        .add(kSumsOfSquares, x, {}, NodeOptions(SumsOfSquaresOptions{{0}, 1}))
        .output();
  };
  expect_refused(sums, {{{2}, DType::kBF16}}, "tensor 0 is bf16; cast it to f32");
}

TEST(ClipByGlobalNorm, ScalesWhatIsLongerAndNothingElse) {
  const std::vector<Tensor> tensors{vector({3, 0}), vector({-4})};  // of norm 5
  EXPECT_EQ(clipped(tensors, 2.5, 0), (std::vector<double>{1.5, 0}));
  EXPECT_EQ(clipped(tensors, 2.5, 1), (std::vector<double>{-2}));
  EXPECT_EQ(clipped(tensors, 5, 1), (std::vector<double>{-4}));
  EXPECT_EQ(clipped(tensors, 1e30, 0), (std::vector<double>{3, 0}));
  EXPECT_EQ(clipped({vector({0}), vector({0})}, 1, 0), (std::vector<double>{0}));
}

// A 16-bit factor would be 0, or its error larger than the result's may be.
TEST(ClipByGlobalNorm, RoundsTensorsOf16BitsOnce) {
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const double max_norm : {0.7, 1e-3, 1e6}) {
      const Builder first = [=](Inputs x) { return clip_by_global_norm(x, max_norm)[0]; };
      const Tensor half = to(random_values({5, 70}, -3e4, 3e4), dtype);
      const Tensor wide = compute(first, {to(half, DType::kF32)});
      EXPECT_EQ(compute(first, {half}), to(wide, dtype)) << max_norm;
    }
}

// As in TensorFlow, so that the weights show it.
TEST(ClipByGlobalNorm, MakesAllNaNIfTheNormIsNoNumber) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity()})
    EXPECT_TRUE(std::isnan(clipped({vector({1}), vector({bad})}, 1, 0)[0]));
}

TEST(ClipByGlobalNorm, KeepsItsContract) {
  for (const double max_norm : {0.5, 1e6})
    check_op({.build = [=](Inputs x) { return clip_by_global_norm(x, max_norm)[0]; },
              .inputs = {random_values({5, 7}), random_values({3}, -1, 1, 2)},
              .gradient = -1,
              .unknown = false});
}

TEST(SumsOfSquares, AreThoseOfEachTensorAndMakeTheNorm) {
  const std::vector<Tensor> tensors{vector({3, 0}), vector({-4})};
  const Builder sums = [](Inputs x) { return sums_of_squares(x)[0]; };
  EXPECT_EQ(doubles(compute(sums, tensors)), (std::vector<double>{9, 16}));
  EXPECT_EQ(
      compute([](Inputs x) { return norm_of_sums(sums_of_squares(x)); }, tensors).item<double>(),
      5);
  try {
    norm_of_sums({});
    ADD_FAILURE() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("needs at least one vector of sums"));
  }
}

float factor_of(double norm, double max_norm, float times) {
  return compute([=](Inputs x) { return clip_factor(x[0], max_norm, x[1]); },
                 {Tensor(norm), Tensor(times)})
      .item<float>();
}

TEST(ClipFactor, HeedsAFactorThatGradientsGetAnyway) {
  EXPECT_EQ(factor_of(1024, 2, 0x1p-10f), 0x1p-10f);  // the norm is 1
  EXPECT_EQ(factor_of(4096, 2, 0x1p-10f), 0x1p-11f);  // the norm is 4
  EXPECT_EQ(factor_of(kInfinity, 2, 0), 0);
  EXPECT_TRUE(std::isnan(factor_of(kInfinity, 2, 0x1p-10f)));
}

// 0 would mean that the update is skipped.
TEST(ClipFactor, IsNever0ForHugeNorms) { EXPECT_GT(factor_of(1e300, 1, 1), 0); }

TEST(ClipFactor, RefusesWhatIsNoScalar) {
  const Builder factor = [](Inputs x) { return clip_factor(x[0], 1, x[1]); };
  const TensorType norm{Shape{}, DType::kF64}, times{Shape{}};
  expect_refused(factor, {{{2}, DType::kF64}, times}, "the norm is f64[2], but a scalar f64");
  expect_refused(factor, {times, times}, "the norm is f32[], but a scalar f64");
  expect_refused(factor, {norm, {{2}}}, "the factor is f32[2], but a scalar f32");
}

TEST(ClipFactor, RefusesALimitThatIsNotPositive) {
  for (const double limit : {0.0, -1.0, kInfinity})
    EXPECT_THROW(factor_of(1, limit, 1), InvalidArgument) << limit;
}

}  // namespace global_norm_test
}  // namespace belfry
