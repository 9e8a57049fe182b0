#include "belfry/ops/normalization/combine_moments.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace combine_moments_test {

// The moments of K means and K variances, given in this order.
const Builder kBuild = [](Inputs x) {
  const Moments all = combine_moments(x.first(x.size() / 2), x.subspan(x.size() / 2));
  return Built({all.mean, all.variance});
};

// K means, K variances and K sizes.
const Builder kCounted = [](Inputs x) {
  const std::size_t k = x.size() / 3;
  const Moments all = combine_moments(x.first(k), x.subspan(k, k), x.subspan(2 * k));
  return Built({all.mean, all.variance});
};

TEST(CombineMoments, AddsTheSpreadOfTheMeans) {
  const auto scalar = [](double value) { return Tensor({1}, std::vector<double>{value}); };
  const Builder mean = [](Inputs x) { return kBuild(x)[0]; };
  const Builder variance = [](Inputs x) { return kBuild(x)[1]; };
  // {1, 3}, {5, 7}, {9, 11}: mean 6, squared differences 25 9 1 1 9 25.
  const std::vector<Tensor> parts = {scalar(2), scalar(6), scalar(10),
                                     scalar(1), scalar(1), scalar(1)};
  EXPECT_DOUBLE_EQ(compute(mean, parts).item<double>(), 6);
  EXPECT_DOUBLE_EQ(compute(variance, parts).item<double>(), 70.0 / 6);
}

TEST(CombineMoments, OnePartIsTheWhole) {
  const Tensor part = random_values({5});
  EXPECT_EQ(compute([](Inputs x) { return kBuild(x)[1]; }, {part, part}), part);
}

TEST(CombineMoments, PartsOfABatchGiveTheMomentsOfTheBatch) {
  for (const int parts : {2, 3, 4, 6, 8}) {
    const Builder errors = [parts](Inputs x) {
      const auto moments_of = [&](Output y) { return batch_norm_train(y, x[1], x[2]); };
      const BatchNorm whole = moments_of(x[0]);
      std::vector<Output> means, variances;
      for (int k = 0; k < parts; ++k) {
        const BatchNorm part = moments_of(slice(x[0], {k * 5, 0}, {5, 3}));
        means.push_back(part.mean);
        variances.push_back(part.variance);
      }
      const Moments all = combine_moments(means, variances);
      return Built({all.mean, whole.mean, all.variance, whole.variance});
    };
    const std::vector<Tensor> inputs = {to(random_values({parts * 5, 3}), DType::kF64),
                                        to(random_values({3}), DType::kF64),
                                        to(random_values({3}), DType::kF64)};
    const auto value = [&](std::size_t i) {
      return compute([&](Inputs x) { return errors(x)[i]; }, inputs);
    };
    EXPECT_LE(difference(value(0), value(1)), 1e-14) << parts;
    EXPECT_LE(difference(value(2), value(3)), 1e-14) << parts;
  }
}

TEST(CombineMoments, WeighsPartsByTheirSizes) {
  const auto scalar = [](double value) { return Tensor({1}, std::vector<double>{value}); };
  const auto size = [](double value) { return Tensor({}, std::vector<double>{value}); };
  // {1, 3, 5}, nothing, {9}: mean 4.5, squared differences 12.25 2.25 0.25 20.25.
  const double garbage = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Tensor> parts = {scalar(3),      scalar(garbage), scalar(9),
                                     scalar(8. / 3), scalar(garbage), scalar(0),
                                     size(3),        size(0),         size(1)};
  const auto result = [&](std::size_t i) {
    return compute([i](Inputs x) { return kCounted(x)[i]; }, parts).item<double>();
  };
  EXPECT_DOUBLE_EQ(result(0), 4.5);
  EXPECT_DOUBLE_EQ(result(1), 35. / 4);
}

TEST(CombineMoments, OfNothingAreZero) {
  const Tensor none({}, std::vector<double>{0}), part({2}, std::vector<double>{4, 5});
  const std::vector<Tensor> inputs{part, part, part, part, none, none};
  for (const std::size_t i : {0, 1})
    EXPECT_EQ(doubles(compute([i](Inputs x) { return kCounted(x)[i]; }, inputs)),
              (std::vector<double>{0, 0}));
}

// As the processes do that merge groups of parts: 2^24 + 1 is no f32, but 2^24 + 2 is one.
TEST(CombineMoments, CountsInTheOrderOfTheTree) {
  const Builder count = [](Inputs x) {
    return combine_moments(x.first(4), x.subspan(4, 4), x.subspan(8)).mean.node().output(2);
  };
  std::vector<Tensor> inputs(8, Tensor({1}, std::vector<float>{0}));
  for (const float size : {1.F * (1 << 24), 1.F, 1.F, 1.F})
    inputs.push_back(Tensor({}, std::vector<float>{size}));
  EXPECT_EQ(compute(count, inputs).item<float>(), 1.F * ((1 << 24) + 2));
}

TEST(CombineMoments, KeepsItsContract) {
  std::vector<Tensor> inputs;
  for (unsigned i = 0; i < 6; ++i) inputs.push_back(random_values({37}, 0.1, 2, i + 1));
  check_op({.build = kBuild, .inputs = inputs, .gradient = -1, .nan = false, .unknown = false});
  const Builder with_sizes = [](Inputs x) {
    std::vector<Output> all(x.begin(), x.end());
    for (const double size : {3., 1., 4.})
      all.push_back(constant(x[0].graph(), size, x[0].dtype()));
    return kCounted(all);
  };
  check_op({.build = with_sizes, .inputs = inputs, .gradient = -1, .nan = false, .unknown = false});
}

TEST(CombineMoments, RefusesPartsOfOtherShapes) {
  expect_refused(kBuild, {{{4}}, {{4}}, {{5}}, {{4}}}, "moments 0 and 1 are f32[4] and f32[5]");
  expect_refused(kCounted, {{{4}}, {{4}}, {{4}}}, "moments 0 and 2 are f32[4] and f32[4]");
}

}  // namespace combine_moments_test
}  // namespace belfry
