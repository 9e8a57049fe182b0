#include "belfry/framework/graph/name_tree.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace name_tree_test {

TEST(NameTree, HasAValueForEachWholeName) {
  NameTree<int> tree;
  tree.at("a/b/c") = 1;
  tree.at("a/b") = 2;
  tree.at("a") = 3;
  int& above = tree.at("a/b");
  for (int i = 0; i < 100; ++i) tree.at("a/" + std::to_string(i));
  EXPECT_EQ(&tree.at("a/b"), &above);  // it has not moved
  EXPECT_EQ(tree.at("a/b/c"), 1);
  EXPECT_EQ(tree.at("a/b"), 2);
  EXPECT_EQ(tree.at("a"), 3);
  EXPECT_EQ(tree.at("b/c"), 0);
}

TEST(NameTree, FindsOnlyWhatWasMadeOrLiesOnTheWayThere) {
  NameTree<int> tree;
  tree.at("a/b/c") = 1;
  ASSERT_TRUE(tree.find("a/b/c"));
  EXPECT_EQ(*tree.find("a/b/c"), 1);
  ASSERT_TRUE(tree.find("a/b"));
  EXPECT_EQ(*tree.find("a/b"), 0);
  for (const char* name : {"", "b", "a/c", "a/b/", "a/b/c/d", "A/b/c"})
    EXPECT_FALSE(tree.find(name)) << name;
}

TEST(NameTree, LeadsToNamesPieceByPiece) {
  NameTree<int> tree;
  tree.at("a/b/c") = 1;
  NameTree<int>::Level& below = tree.root().below("a").below("b");
  EXPECT_EQ(below.at("c"), 1);
  below.at("d") = 2;
  for (int i = 0; i < 100; ++i) tree.root().at(std::to_string(i));
  EXPECT_EQ(&tree.root().below("a").below("b"), &below);  // it has not moved
  EXPECT_EQ(tree.at("a/b/d"), 2);
}

TEST(NameTree, VisitsAllValues) {
  NameTree<int> tree;
  tree.at("a/b") = 2;
  tree.at("c") = 3;
  int sum = 0;
  tree.for_each([&](int value) { sum += value; });
  EXPECT_EQ(sum, 5);
}

}  // namespace name_tree_test
}  // namespace belfry
