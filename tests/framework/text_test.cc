#include "belfry/framework/text.h"

#include <gtest/gtest.h>

#include "belfry/framework/shape.h"

namespace belfry {
namespace {

TEST(Cat, JoinsTextNumbersAndWhatHasAStr) {
  EXPECT_EQ(cat("need ", 3, " of ", Shape{2, 2}, '!', true), "need 3 of [2,2]!true");
  EXPECT_EQ(cat(0.1, " ", 1.f / 3, " ", 1e300), "0.1 0.33333334 1e+300");
  EXPECT_EQ(cat(std::uint8_t{200}, " ", std::int64_t{-1}, " ", std::string("s")), "200 -1 s");
  EXPECT_EQ(cat(), "");
}

TEST(Join, SeparatesParts) {
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b"}, "+"), "a+b");
  EXPECT_EQ(join(std::vector<std::string>{}), "");
}

TEST(Nearest, FindsWhatWasProbablyMeant) {
  const std::vector<std::string> flags = {"epochs", "batch_size", "learning_rate", "seed"};
  EXPECT_EQ(nearest("epoch", flags), "epochs");
  EXPECT_EQ(nearest("epohcs", flags), "epochs");
  EXPECT_EQ(nearest("lerning_rte", flags), "learning_rate");
  EXPECT_EQ(nearest("sede", flags), "seed");
  EXPECT_EQ(nearest("seed", flags), "seed");
}

TEST(Nearest, IsSilentWhenNothingIsNear) {
  const std::vector<std::string> flags = {"epochs", "lr"};
  EXPECT_EQ(nearest("momentum", flags), "");
  EXPECT_EQ(nearest("xy", flags), "");
  EXPECT_EQ(nearest("x", flags), "");
  EXPECT_EQ(nearest("", flags), "");
  EXPECT_EQ(nearest("lr", {}), "");
}

TEST(Nearest, PrefersTheFirstOfEquals) { EXPECT_EQ(nearest("cat", {"bat", "hat"}), "bat"); }

TEST(Text, ShowsNamesThatComeOutOfFilesShortAndPrintable) {
  EXPECT_EQ(shown("fc/w"), "fc/w");
  EXPECT_EQ(shown("a\nb\x7f\x1b[2J"), "a?b??[2J");
  EXPECT_EQ(shown("abcdef", 6), "abcdef");
  EXPECT_EQ(shown("abcdefg", 6), "abcdef...");
  EXPECT_EQ(shown("ab\xc3\xa9x", 3), "ab...");  // no half of an e with an accent
}

TEST(Text, HintsIgnoreNamesOfAnotherLengthAltogether) {
  EXPECT_EQ(nearest("weight", {std::string(1'000'000, 'x'), "weights"}), "weights");
}

}  // namespace
}  // namespace belfry
