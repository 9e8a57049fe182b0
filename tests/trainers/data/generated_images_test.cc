#include "belfry/trainers/data/generated_images.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace generated_images_test {

TEST(GeneratedImages, AreAFunctionOfSeedAndIndex) {
  const auto data = data::generated_images({.side = 9, .classes = 5, .count = 40, .seed = 3});
  const std::vector<std::int64_t> all{0, 1, 2, 3}, some{2, 0};
  const auto batch = gather_tensors(*data, all), part = gather_tensors(*data, some);
  EXPECT_EQ(batch[0].shape(), (Shape{4, 9, 9, 3}));
  const auto image = [](const Tensor& images, std::size_t i) {
    return images.data<float>().subspan(i * 243, 243);
  };
  EXPECT_TRUE(std::ranges::equal(image(part[0], 0), image(batch[0], 2)));
  EXPECT_TRUE(std::ranges::equal(image(part[0], 1), image(batch[0], 0)));
  const auto other = data::generated_images({.side = 9, .classes = 5, .count = 40, .seed = 4});
  EXPECT_NE(gather_tensors(*other, all)[0], batch[0]);
}

TEST(GeneratedImages, HaveEveryClassAndStayNearZero) {
  const auto data = data::generated_images({.side = 8, .classes = 4, .count = 100, .seed = 1});
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 100; ++i) rows.push_back(i);
  const auto batch = gather_tensors(*data, rows);
  const auto labels = batch[1].data<std::int32_t>();
  EXPECT_EQ(std::set<int>(labels.begin(), labels.end()), (std::set<int>{0, 1, 2, 3}));
  const auto [least, most] = std::ranges::minmax(batch[0].data<float>());
  EXPECT_GT(least, -3);
  EXPECT_LT(most, 3);
}

TEST(GeneratedImages, RefuseSizesThatCannotBe) {
  EXPECT_THROW(data::generated_images({.side = 0}), InvalidArgument);
  EXPECT_THROW(data::generated_images({.side = 20000}), InvalidArgument);
  EXPECT_THROW(data::generated_images({.classes = 0}), InvalidArgument);
  EXPECT_THROW(data::generated_images({.count = 0}), InvalidArgument);
}

}  // namespace generated_images_test
}  // namespace belfry
