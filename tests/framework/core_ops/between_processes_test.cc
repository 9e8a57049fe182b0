#include "belfry/framework/core_ops/between_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace between_processes_test {

using ::testing::ElementsAre;

TEST(CoveringNodes, OfAlignedTowersAreOne) {
  EXPECT_THAT(covering_nodes({2, 4}, 4), ElementsAre(TreeNode{2, 4}));
  EXPECT_THAT(covering_nodes({0, 8}, 8), ElementsAre(TreeNode{0, 8}));
  EXPECT_THAT(covering_nodes({5, 6}, 8), ElementsAre(TreeNode{5, 6}));
}

// The tree over six: ((0 1) 2) ((3 4) 5).
TEST(CoveringNodes, AreTheLargestInside) {
  EXPECT_THAT(covering_nodes({0, 2}, 6), ElementsAre(TreeNode{0, 2}));
  EXPECT_THAT(covering_nodes({2, 4}, 6), ElementsAre(TreeNode{2, 3}, TreeNode{3, 4}));
  EXPECT_THAT(covering_nodes({3, 6}, 6), ElementsAre(TreeNode{3, 6}));
  EXPECT_THAT(covering_nodes({1, 6}, 6),
              ElementsAre(TreeNode{1, 2}, TreeNode{2, 3}, TreeNode{3, 6}));
}

TEST(CoveringNodes, OfAllProcessesCoverEveryTowerOnce) {
  for (int size = 1; size <= 7; ++size)
    for (int towers = 1; towers <= 5; ++towers) {
      int next = 0;
      for (int r = 0; r < size; ++r)
        for (const TreeNode& node : covering_nodes({r * towers, (r + 1) * towers}, size * towers)) {
          EXPECT_EQ(node.begin, next);
          next = node.end;
        }
      EXPECT_EQ(next, size * towers);
    }
}

}  // namespace between_processes_test
}  // namespace belfry
