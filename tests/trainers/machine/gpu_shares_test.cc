#include "belfry/trainers/machine/gpu_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/framework/device/fake_gpus.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace gpu_shares_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::vector<int>> shares(const std::vector<ProcessGpus>& all,
                                     bool several_ranks = false) {
  std::vector<std::vector<int>> result;
  for (int r = 0; r < std::ssize(all); ++r) result.push_back(share_of_gpus(all, r, several_ranks));
  return result;
}

TEST(GpuShares, OfDisjointGpusAreAllThatAProcessSees) {
  EXPECT_THAT(shares({{"a", {"x", "y"}}, {"a", {"z"}}, {"a", {}}}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(0), IsEmpty()));
}

TEST(GpuShares, OfEqualGpusAreDividedInTheOrderOfRanks) {
  const std::vector<std::string> four = {"w", "x", "y", "z"};
  EXPECT_THAT(shares({{"a", four}, {"a", four}}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(shares({{"a", four}, {"a", four}, {"a", four}}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(GpuShares, OfOtherHostsDoNotMatter) {
  const std::vector<std::string> two = {"x", "y"};
  EXPECT_THAT(shares({{"a", two}, {"b", two}, {"a", two}}),
              ElementsAre(ElementsAre(0), ElementsAre(0, 1), ElementsAre(1)));
}

TEST(GpuShares, FollowTheNumbersOfTheGpusAndNotTheirUuids) {
  const std::vector<std::string> four = {"z", "w", "y", "x"};
  EXPECT_THAT(shares({{"a", four}, {"a", four}}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

// CUDA_VISIBLE_DEVICES may list GPUs in any order.
TEST(GpuShares, AreDisjointWhereProcessesNumberGpusInOtherWays) {
  EXPECT_THAT(shares({{"a", {"x", "y"}}, {"a", {"y", "x"}}}),
              ElementsAre(ElementsAre(0), ElementsAre(0)));
}

TEST(GpuShares, NameBothRanksAndTheGpusOfAnotherOverlap) {
  const std::vector<ProcessGpus> all = {
      {"b", {"x"}}, {"a", {"x", "y"}}, {"a", {"z"}}, {"a", {"y", "z2"}}};
  for (int r = 0; r < 4; ++r)
    EXPECT_THAT(message_of<InvalidArgument>([&] { share_of_gpus(all, r, false); }),
                AllOf(HasSubstr("rank 1 on a sees x, y"), HasSubstr("rank 3 on a sees y, z2"),
                      HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(GpuShares, ServeSeveralProcessesByOneGpuIfNcclDoes) {
  const std::vector<ProcessGpus> all(4, {"a", {"x", "y"}});
  EXPECT_THAT(shares(all, true),
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(1), ElementsAre(1)));
  EXPECT_THAT(message_of<InvalidArgument>([&] { share_of_gpus(all, 2, false); }),
              AllOf(HasSubstr("4 processes on a would share 2 GPUs (x, y)"),
                    HasSubstr("start no more processes than GPUs")));
}

TEST(GpuShares, AreReadAsTheyAreWritten) {
  const test::FakeGpus gpus(2);
  const ProcessGpus own = own_gpus("node7", Gpus(gpus));
  EXPECT_THAT(own.uuids, ElementsAre("GPU-0", "GPU-1"));
  const ProcessGpus read = ProcessGpus::read(own.str());
  EXPECT_EQ(read.host, "node7");
  EXPECT_EQ(read.uuids, own.uuids);
  EXPECT_THAT(ProcessGpus::read(ProcessGpus{"h", {}}.str()).uuids, IsEmpty());
}

}  // namespace gpu_shares_test
}  // namespace belfry
