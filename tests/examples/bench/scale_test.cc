#include "belfry/examples/bench/scale.h"

#include <vector>

#include <gtest/gtest.h>

namespace belfry {
namespace scale_test {

TEST(Scale, MultipliesARangeOfEveryStreamAndNothingElse) {
  for (const std::size_t streams : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
    constexpr std::int64_t kElements = 3000, kBegin = 5, kEnd = 2900;
    std::vector<std::vector<float>> data;
    std::vector<float*> pointers;
    for (std::size_t k = 0; k < streams; ++k) {
      data.emplace_back(kElements);
      for (std::size_t i = 0; i < kElements; ++i)
        data[k][i] = static_cast<float>(i + 10000 * k) + 1;
    }
    for (auto& stream : data) pointers.push_back(stream.data());
    scale_in_place(pointers, 2, kBegin, kEnd);
    for (std::size_t k = 0; k < streams; ++k)
      for (std::int64_t i = 0; i < kElements; ++i) {
        const float was = static_cast<float>(i + 10000 * static_cast<std::int64_t>(k)) + 1;
        const bool inside = i >= kBegin && i < kEnd;
        ASSERT_EQ(data[k][static_cast<std::size_t>(i)], inside ? 2 * was : was)
            << "stream " << k << " of " << streams << ", element " << i;
      }
  }
}

}  // namespace scale_test
}  // namespace belfry
