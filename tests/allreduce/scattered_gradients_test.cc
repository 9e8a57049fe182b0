#include "belfry/allreduce/scattered_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace scattered_gradients_test {

using ::testing::ElementsAre;

Cuts cut(std::vector<std::int64_t> sizes, int processes) {
  return cut_between_blocks(sizes, processes);
}

TEST(CutBetweenBlocks, CutsATensorAtMultiplesOfABlock) {
  EXPECT_THAT(cut({4 * 4096}, 2), ElementsAre(0, 2 * 4096, 4 * 4096));
  EXPECT_THAT(cut({4 * 4096}, 3), ElementsAre(0, 4096, 3 * 4096, 4 * 4096));
  EXPECT_THAT(cut({3 * 4096 + 100}, 2), ElementsAre(0, 2 * 4096, 3 * 4096 + 100));
}

// Blocks of a tensor are counted from its beginning.
TEST(CutBetweenBlocks, CutsBetweenTensorsAndInThem) {
  EXPECT_THAT(cut({1000, 1000}, 2), ElementsAre(0, 1000, 2000));
  EXPECT_THAT(cut({1000, 3 * 4096}, 2), ElementsAre(0, 1000 + 4096, 1000 + 3 * 4096));
}

TEST(CutBetweenBlocks, LeavesPartsEmptyWhereThereIsNoPlaceToCut) {
  EXPECT_THAT(cut({5}, 2), ElementsAre(0, 0, 5));
  EXPECT_THAT(cut({1, 1}, 3), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(cut({}, 2), ElementsAre(0, 0, 0));
}

}  // namespace scattered_gradients_test
}  // namespace belfry
