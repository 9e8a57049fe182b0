#include "belfry/tests/cuda/test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry::test {
namespace test_names_test {

TEST(CudaTests, CanAllBeSkippedByName) {
  std::set<std::pair<std::string, std::string>> registered;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      registered.emplace(suite.name(), suite.GetTestInfo(t)->name());
  }
  EXPECT_EQ(registered, cuda_test_names());
}

}  // namespace test_names_test
}  // namespace belfry::test
