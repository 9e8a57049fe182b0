#include "belfry/framework/plan/consumers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace consumers_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Consumers, AreListedByNodeInTheOrderOfEdges) {
  const auto n = [](int i) { return NodeIndex(i); };
  const Consumers consumers(4, [&](const auto& add) {
    add(n(0), n(3));
    add(n(2), n(3));
    add(n(0), n(1));
    add(n(0), n(3));
  });
  EXPECT_EQ(consumers.size(), 4u);
  EXPECT_THAT(consumers[n(0)], ElementsAre(n(3), n(1), n(3)));
  EXPECT_THAT(consumers[n(1)], IsEmpty());
  EXPECT_THAT(consumers[n(2)], ElementsAre(n(3)));
  EXPECT_THAT(consumers[n(3)], IsEmpty());
}

}  // namespace consumers_test
}  // namespace belfry
