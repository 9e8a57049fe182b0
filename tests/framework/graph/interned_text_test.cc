#include "belfry/framework/graph/interned_text.h"

#include <gtest/gtest.h>

namespace belfry {
namespace interned_text_test {

TEST(InternedText, IsKeptOnceHoweverItIsMade) {
  const InternedText gpu = "GPU", again = std::string("G") + "PU", cpu = "CPU";
  EXPECT_EQ(gpu, again);
  EXPECT_EQ(&gpu.str(), &again.str());
  EXPECT_NE(gpu, cpu);
  EXPECT_EQ(gpu.str(), "GPU");
}

TEST(InternedText, IsOrderedAsItsText) {
  const InternedText later = "b", earlier = "a";  // kept in this order
  EXPECT_LT(earlier, later);
  EXPECT_EQ(earlier <=> InternedText("a"), std::strong_ordering::equal);
}

}  // namespace interned_text_test
}  // namespace belfry
