#include "belfry/framework/base/options.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/shape.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace options_test {

enum class Mode { kFirst, kSecond };
struct Empty {};
struct One {
  int a = 4;
};
struct Six {
  int a = 1;
  double b = 0.5;
  bool c = true;
  Mode d = Mode::kSecond;
  std::vector<std::int64_t> e = {2, 3};
  Shape f = {kUnknown, 7};
};

TEST(Options, PrintTheirFieldsInOrder) {
  EXPECT_EQ(Options(Six{}).str(), "{1,0.5,true,1,[2,3],[?,7]}");
  EXPECT_EQ(Options(One{}).str(), "{4}");
  EXPECT_EQ(Options(Empty{}).str(), "{}");
  EXPECT_EQ(Options().str(), "");
}

TEST(Options, AreReadAsTheTypeTheyHave) {
  const Options options(One{9});
  EXPECT_EQ(options.as<One>().a, 9);
  EXPECT_THROW(options.as<Six>(), Internal);
  EXPECT_THROW(Options().as<One>(), Internal);
}

TEST(Options, CopiesShareTheStruct) {
  const Options options(Six{});
  const Options copy = options;
  EXPECT_EQ(&copy.as<Six>(), &options.as<Six>());
}

}  // namespace options_test
}  // namespace belfry
