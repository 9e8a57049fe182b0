#include "belfry/trainers/machine/core_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace core_shares_test {

using ::testing::ElementsAre;

ProcessCores process(const std::string& cores, int quota = 0, const std::string& host = "a") {
  return ProcessCores::read(cat(8, " ", quota, " ", cores, " ", host));
}

std::vector<int> shares(const std::vector<ProcessCores>& all) {
  std::vector<int> result;
  for (int rank = 0; rank < std::ssize(all); ++rank) result.push_back(share_of_cores(all, rank));
  return result;
}

TEST(CoreShares, OfEqualMasksAreDivided) {
  EXPECT_THAT(shares({process("11111111"), process("11111111")}), ElementsAre(4, 4));
  EXPECT_THAT(shares({process("111"), process("111"), process("111"), process("111")}),
              ElementsAre(1, 1, 1, 1));
}

TEST(CoreShares, OfDisjointMasksAreWhole) {
  EXPECT_THAT(shares({process("11"), process("0011")}), ElementsAre(2, 2));
  EXPECT_THAT(shares({process("11"), process("11", 0, "b")}), ElementsAre(2, 2));
}

TEST(CoreShares, OfMasksThatOverlapCountWhatIsShared) {
  EXPECT_THAT(shares({process("1111"), process("0011")}), ElementsAre(3, 1));
}

TEST(CoreShares, StayWithinTheQuotaOfTheHost) {
  EXPECT_THAT(shares({process("11111111", 4), process("11111111", 4)}), ElementsAre(2, 2));
  EXPECT_THAT(shares({process("1111", 2), process("00001111", 2)}), ElementsAre(1, 1));
  EXPECT_THAT(shares({process("1111", 1), process("1111", 1)}), ElementsAre(1, 1));
}

TEST(NarrowProcesses, AreThoseWithLessThanTheirPartOfTheHost) {
  EXPECT_THAT(narrow_processes(std::vector{process("1"), process("01111111")}),
              ElementsAre("rank 0 on a may use 1 of 8 cores, and its part of them is 4", ""));
  EXPECT_THAT(narrow_processes(std::vector{process("1111"), process("00001111")}),
              ElementsAre("", ""));
  // The quota allows no more.
  EXPECT_THAT(narrow_processes(std::vector{process("1", 2), process("01", 2)}),
              ElementsAre("", ""));
}

TEST(ProcessCores, AreReadAsTheyAreWritten) {
  const ProcessCores own = own_cores("node7");
  EXPECT_EQ(ProcessCores::read(own.str()).str(), own.str());
  EXPECT_GE(std::ranges::count(own.allowed, true), 1);
}

}  // namespace core_shares_test
}  // namespace belfry
