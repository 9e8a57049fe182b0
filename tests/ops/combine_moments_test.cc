#include "belfry/ops/combine_moments.h"

#include <gtest/gtest.h>

#include "belfry/ops/batch_norm.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace {

// The moments of K means and K variances, given in this order.
const Builder kBuild = [](Inputs x) {
  const Moments all = combine_moments(x.first(x.size() / 2), x.subspan(x.size() / 2));
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

TEST(CombineMoments, KeepsItsContract) {
  std::vector<Tensor> inputs;
  for (unsigned i = 0; i < 6; ++i) inputs.push_back(random_values({37}, 0.1, 2, i + 1));
  check_op({.build = kBuild, .inputs = inputs, .gradient = -1, .nan = false, .unknown = false});
}

TEST(CombineMoments, RefusesPartsOfOtherShapes) {
  expect_refused(kBuild, {{{4}}, {{5}}, {{4}}, {{4}}}, "moments 0 and 1 are f32[4] and f32[5]");
}

}  // namespace
}  // namespace belfry
