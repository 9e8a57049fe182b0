#include "belfry/ops/normalization/batch_moments.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace batch_moments_test {

const Builder kBuild = [](Inputs x) {
  const Node& node = x[0].graph().add(kBatchMoments, {x[0]});
  return Built({node.output(0), node.output(1), node.output(2)});
};

std::vector<double> result(std::size_t i, const Tensor& x) {
  return doubles(compute([i](Inputs in) { return kBuild(in)[i]; }, {x}));
}

TEST(BatchMoments, AreAMeanAndSquaredDifferencesFromItAndCountRows) {
  const Tensor x({2, 2, 2}, std::vector<double>{1, 8, 3, 12, 1, 8, 3, 12});
  EXPECT_EQ(result(0, x), (std::vector<double>{2, 10}));
  EXPECT_EQ(result(1, x), (std::vector<double>{4, 16}));
  EXPECT_EQ(result(2, x), (std::vector<double>{4}));
}

TEST(BatchMoments, CountRowsWithoutChannels) {
  EXPECT_EQ(result(2, Tensor({3, 0}, DType::kF32)), (std::vector<double>{3}));
}

TEST(BatchMoments, OfNoRowsAreZeros) {
  const Tensor x({0, 2}, DType::kF32);
  EXPECT_EQ(result(0, x), (std::vector<double>{0, 0}));
  EXPECT_EQ(result(1, x), (std::vector<double>{0, 0}));
  EXPECT_EQ(result(2, x), (std::vector<double>{0}));
}

TEST(BatchMoments, OfWeightZeroCountNothing) {
  const Builder count = [](Inputs x) {
    return Built({x[0].graph().add(kBatchMoments, {x[0], x[1]}).output(2)});
  };
  const Tensor x({3, 2}, DType::kF32), zero({}, DType::kF32);
  EXPECT_EQ(doubles(compute(count, {x, zero})), (std::vector<double>{0}));
}

TEST(BatchMoments, KeepTheirContract) {
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 2, 17}, Shape{700, 9}})
    check_op({.build = kBuild,
              .inputs = {random_values(shape, 0, 3)},
              .f32 = 2e-6,
              .f64 = 1e-12,
              .gradient = -1,
              .nan = false});
}

TEST(BatchMoments, RefuseAVector) { expect_refused(kBuild, {{{8}}}, "needs images or rows"); }

}  // namespace batch_moments_test
}  // namespace belfry
