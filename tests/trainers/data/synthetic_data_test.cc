#include "belfry/trainers/data/synthetic_data.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace synthetic_data_test {

std::vector<Dataset::Field> fields() {
  return {{"image", DType::kF32, {4, 4, 3}}, {"label", DType::kI32, {}}};
}

std::vector<Tensor> all(std::int64_t samples, std::uint64_t seed) {
  const auto data = synthetic_data(fields(), 10, samples, seed);
  EXPECT_EQ(data->signature(), fields());
  EXPECT_EQ(data->size(), samples);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < samples; ++i) rows.push_back(i);
  return gather_tensors(*data, rows);
}

TEST(SyntheticData, AreUniformAndHoldEveryClass) {
  const std::vector<Tensor> batch = all(500, 1);
  const auto [least, most] = std::ranges::minmax(batch[0].data<float>());
  EXPECT_GE(least, -1);
  EXPECT_LT(least, -0.99);
  EXPECT_LT(most, 1);
  EXPECT_GT(most, 0.99);
  const auto labels = batch[1].data<std::int32_t>();
  EXPECT_EQ(std::set<std::int32_t>(labels.begin(), labels.end()).size(), 10u);
  EXPECT_EQ(std::ranges::min(labels), 0);
  EXPECT_EQ(std::ranges::max(labels), 9);
}

// The sum of 1 / (c + 1) over 10 classes is 2.93, so class 0 is about 34 % and class 9 about 3.4 %.
TEST(SyntheticData, FollowZipfsLawAsWordsDo) {
  const auto data = synthetic_data({{"ids", DType::kI32, {100}}}, 10, 100, 1, ClassLaw::kZipf);
  std::vector<std::int64_t> rows(100);
  std::iota(rows.begin(), rows.end(), 0);
  const Tensor ids = gather_tensors(*data, rows).at(0);
  std::vector<int> counts(10);
  for (const std::int32_t id : ids.data<std::int32_t>()) ++counts.at(static_cast<std::size_t>(id));
  for (int c = 0; c < 10; ++c) {
    SCOPED_TRACE(c);
    EXPECT_NEAR(counts[static_cast<std::size_t>(c)], 10000 / 2.92897 / (c + 1), 200);
  }
}

TEST(SyntheticData, AreAFunctionOfTheSeed) {
  EXPECT_EQ(all(6, 3), all(6, 3));
  EXPECT_NE(all(6, 3)[0], all(6, 4)[0]);
}

TEST(SyntheticData, RefuseOtherTypesAndEmptySets) {
  EXPECT_THROW(synthetic_data({{"x", DType::kF64, {}}}, 2, 2, 1), InvalidArgument);
  EXPECT_THROW(synthetic_data(fields(), 0, 2, 1), InvalidArgument);
  EXPECT_THROW(synthetic_data(fields(), 2, 0, 1), InvalidArgument);
}

}  // namespace synthetic_data_test
}  // namespace belfry
