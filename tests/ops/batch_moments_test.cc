#include "belfry/ops/normalization/batch_moments.h"

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/slice.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace batch_moments_test {

const Builder kBuild = [](Inputs x) {
  const CountedMoments m = batch_moments(x[0]);
  return Built({m.mean, m.variance, m.count});
};

TEST(BatchMoments, AreThoseOfThePopulationAndCountRows) {
  const Tensor x({2, 2, 2}, std::vector<double>{1, 8, 3, 12, 1, 8, 3, 12});
  const auto result = [&](std::size_t i) {
    return doubles(compute([i](Inputs in) { return kBuild(in)[i]; }, {x}));
  };
  EXPECT_EQ(result(0), (std::vector<double>{2, 10}));
  EXPECT_EQ(result(1), (std::vector<double>{1, 4}));
  EXPECT_EQ(result(2), (std::vector<double>{4}));
}

TEST(BatchMoments, CountRowsWithoutChannels) {
  const Tensor x({3, 0}, DType::kF32);
  EXPECT_EQ(doubles(compute([](Inputs in) { return Built({kBuild(in)[2]}); }, {x})),
            (std::vector<double>{3}));
}

TEST(BatchMoments, KeepTheirContract) {
  const Builder differentiable = [](Inputs x) {
    const CountedMoments m = batch_moments(x[0]);
    return Built({m.mean, m.variance});
  };
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 2, 17}})
    check_op({.build = differentiable,
              .inputs = {random_values(shape, 0, 3)},
              .f32 = 2e-6,
              .f64 = 1e-12,
              .nan = false});
}

// Batch norm of parts of unequal size, by their common moments.
TEST(BatchMoments, OfPartsGiveTheBatchNormOfTheWholeAndItsGradients) {
  const Builder in_parts = [](Inputs x) {
    const std::int64_t begins[] = {0, 1, 5, 7};
    std::vector<Output> parts, means, variances, counts;
    for (std::size_t k = 0; k < 3; ++k) {
      parts.push_back(slice(x[0], {begins[k], 0}, {begins[k + 1] - begins[k], 3}));
      const CountedMoments m = batch_moments(parts[k]);
      means.push_back(m.mean);
      variances.push_back(m.variance);
      counts.push_back(m.count);
    }
    const Moments all = combine_moments(means, variances, counts);
    std::vector<Output> result;
    for (const Output& part : parts)
      result.push_back(batch_norm_inference(part, x[1], x[2], all.mean, all.variance));
    return Built(result);
  };
  const std::vector<Tensor> inputs = {to(random_values({7, 3}), DType::kF64),
                                      to(random_values({3}, 0.5, 2, 2), DType::kF64),
                                      to(random_values({3}, -1, 1, 3), DType::kF64)};
  const std::vector<double> whole =
      doubles(compute([](Inputs x) { return batch_norm_train(x[0], x[1], x[2]).y; }, inputs));
  std::vector<double> joined;
  for (std::size_t k = 0; k < 3; ++k)
    for (const double value : doubles(compute([&](Inputs x) { return in_parts(x)[k]; }, inputs)))
      joined.push_back(value);
  ASSERT_EQ(joined.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(joined[i], whole[i], 1e-13);
  check_op({.build = in_parts,
            .inputs = {random_values({7, 3}), random_values({3}, 0.5, 2, 2),
                       random_values({3}, -1, 1, 3)},
            .f32 = 4e-6,
            .f64 = 1e-12,
            .nan = false,
            .unknown = false});
}

TEST(BatchMoments, RefuseAVector) { expect_refused(kBuild, {{{8}}}, "needs images or rows"); }

}  // namespace batch_moments_test
}  // namespace belfry
