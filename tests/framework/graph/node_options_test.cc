#include "belfry/framework/graph/node_options.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/shape.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace node_options_test {

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
  Shape f = {kUnknownSize, 7};
};

TEST(NodeOptions, PrintTheirFieldsInOrder) {
  EXPECT_EQ(NodeOptions(Six{}).str(), "{1,0.5,true,1,[2,3],[?,7]}");
  EXPECT_EQ(NodeOptions(One{}).str(), "{4}");
  EXPECT_EQ(NodeOptions(Empty{}).str(), "{}");
  EXPECT_EQ(NodeOptions().str(), "");
}

TEST(NodeOptions, AreReadAsTheTypeTheyHave) {
  const NodeOptions options(One{9});
  EXPECT_EQ(options.as<One>().a, 9);
  EXPECT_THROW(options.as<Six>(), InternalError);
  EXPECT_THROW(NodeOptions().as<One>(), InternalError);
}

TEST(NodeOptions, CopiesShareTheStruct) {
  const NodeOptions options(Six{});
  const NodeOptions copy = options;
  EXPECT_EQ(&copy.as<Six>(), &options.as<Six>());
}

}  // namespace node_options_test
}  // namespace belfry
