#include "belfry/framework/passes/smallest_first.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace belfry {
namespace smallest_first_test {

TEST(SmallestFirst, GivesWhatASortedSetGives) {
  for (const std::size_t limit : {1, 64, 65, 4096, 4097, 300000}) {
    std::mt19937 random(static_cast<unsigned>(limit));
    SmallestFirst numbers(limit);
    std::set<std::size_t> expected;
    for (int i = 0; i < 2000; ++i) {
      if (const std::size_t number = random() % limit; random() % 3 > 0) {
        numbers.push(number);
        expected.insert(number);
      } else if (!expected.empty()) {
        ASSERT_EQ(numbers.pop(), *expected.begin()) << limit;
        expected.erase(expected.begin());
      }
      ASSERT_EQ(numbers.empty(), expected.empty()) << limit;
    }
    for (const std::size_t number : expected) ASSERT_EQ(numbers.pop(), number) << limit;
    EXPECT_TRUE(numbers.empty());
  }
}

TEST(SmallestFirst, OfNoNumbersIsEmpty) { EXPECT_TRUE(SmallestFirst(0).empty()); }

}  // namespace smallest_first_test
}  // namespace belfry
