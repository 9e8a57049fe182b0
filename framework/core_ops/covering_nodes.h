// Which parts of the canonical tree over the towers of all processes each process can add by
// itself.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace belfry {

// A node of the canonical tree over the towers of all processes: the balanced tree over leaves 0 ..
// n - 1, split at ceil(n / 2). Half-open.
struct TreeNode {
  int begin, end;
  bool operator==(const TreeNode&) const = default;
};

// The largest nodes of the tree over `leaves` that lie in [begin, end), in order.
std::vector<TreeNode> covering_nodes(TreeNode range, int leaves);

// Of the towers of one of `size` processes, and of all of them, in order.
std::vector<TreeNode> covering_nodes_of(int rank, int size, int towers);
std::vector<TreeNode> all_covering_nodes(int size, int towers);
// How many of all there are beside those of one process.
std::int64_t count_nodes_of_others(int rank, int size, int towers);

// Where the two halves of a node meet, and how many of `nodes`, which cover it, lie in the first.
int middle_of(TreeNode node);
std::size_t count_left(std::span<const TreeNode> nodes, TreeNode node);

// For who adds `nodes`, which cover a node, by a stack: after each, how many times the last two
// sums on the stack are added.
std::vector<int> additions_in_order(std::span<const TreeNode> nodes, TreeNode node);

}  // namespace belfry
