#include "belfry/framework/base/text.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/shape.h"

namespace belfry {
namespace text_test {

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
  EXPECT_EQ(join(std::vector<std::string>{"", "a", "", "b", ""}, ":"), ":a::b:");
}

TEST(Text, ChangesTheCaseOfAsciiLettersAlone) {
  EXPECT_EQ(upper("cpu:0 aZ_\xc3\xa9[`{"), "CPU:0 AZ_\xc3\xa9[`{");
  EXPECT_EQ(lower("GPU:0 aZ_\xc3\x89[@{"), "gpu:0 az_\xc3\x89[@{");
  EXPECT_EQ(upper(""), "");
}

TEST(Text, SplitsIntoOnePartMoreThanThereAreSeparators) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("2,0", ','), (Parts{"2", "0"}));
  EXPECT_EQ(split("abc", ','), Parts{"abc"});
  EXPECT_EQ(split("", ','), Parts{""});
  EXPECT_EQ(split("/a//b/", '/'), (Parts{"", "a", "", "b", ""}));
}

TEST(Text, HexadecimalNumbersArePaddedWithZeros) {
  EXPECT_EQ(hex(0, 16), "0000000000000000");
  EXPECT_EQ(hex(0x1ef, 16), "00000000000001ef");
  EXPECT_EQ(hex(~std::uint64_t{0}, 16), "ffffffffffffffff");
  EXPECT_EQ(hex(0xcbf43926, 8), "cbf43926");
  EXPECT_EQ(hex(0x12345, 4), "2345");
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

TEST(NearestSeveral, PutsNamesThatContainTheWordFirst) {
  const std::vector<std::string> names{"fc/W", "tower0/conv0/Conv2d", "conv0/b", "conv0/W"};
  EXPECT_EQ(nearest_several("CONV0", names, 2), (std::vector<std::string>{"conv0/W", "conv0/b"}));
  EXPECT_EQ(nearest_several("zz", names, 9).size(), 4u);
  EXPECT_TRUE(nearest_several("zz", {}, 3).empty());
}

}  // namespace text_test
}  // namespace belfry
