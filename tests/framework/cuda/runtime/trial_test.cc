#include "belfry/framework/cuda/runtime/trial.h"

#include <cmath>

#include <gtest/gtest.h>

namespace belfry::cuda {
namespace trial_test {

using Numbers = std::vector<double>;

TEST(Trial, ComparesResultsByTheirLargestDifference) {
  EXPECT_EQ(relative_difference(Numbers{1, -4, 2}, Numbers{1, -4, 2}), 0);
  EXPECT_EQ(relative_difference(Numbers{1, -4, 3}, Numbers{1, -4, 2}), 0.25);
  EXPECT_EQ(relative_difference(Numbers{0, 0}, Numbers{0, 0}), 0);
  EXPECT_EQ(relative_difference(Numbers{0, 1e-9}, Numbers{0, 0}), AlgorithmSource::kNever);
  EXPECT_EQ(relative_difference(Numbers{NAN, 1}, Numbers{1, 1}), AlgorithmSource::kNever);
  EXPECT_EQ(relative_difference(Numbers{1, 1}, Numbers{1, NAN}), AlgorithmSource::kNever);
}

}  // namespace trial_test
}  // namespace belfry::cuda
