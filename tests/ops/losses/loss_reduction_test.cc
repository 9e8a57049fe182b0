#include "belfry/ops/losses/loss_reduction.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace loss_reduction_test {

TEST(LossReduction, IsAMeanOfElementsOrOfSamples) {
  const Tensor losses({2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  const auto reduced = [&](LossReduction reduction, const Tensor& x) {
    return doubles(compute([&](Inputs in) { return reduce_losses(in[0], reduction); }, {x}));
  };
  EXPECT_EQ(reduced(LossReduction::kMean, losses), (std::vector<double>{3.5}));
  EXPECT_EQ(reduced(LossReduction::kBatchMean, losses), (std::vector<double>{10.5}));
  EXPECT_EQ(reduced(LossReduction::kNone, losses), doubles(losses));
  const Tensor of_samples({2}, std::vector<double>{1, 2});
  EXPECT_EQ(reduced(LossReduction::kBatchMean, of_samples), (std::vector<double>{1.5}));
}

}  // namespace loss_reduction_test
}  // namespace belfry
