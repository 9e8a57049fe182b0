// The parts of the canonical tree over the towers of all processes that each process can add alone.
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

// The covering nodes of one of `size` processes, and of all of them, in order.
std::vector<TreeNode> covering_nodes_of(int rank, int size, int towers);
std::vector<TreeNode> all_covering_nodes(int size, int towers);
// How many covering nodes the other processes have.
std::int64_t count_nodes_of_others(int rank, int size, int towers);

// How many processes add with each other at each level of a sum over many: groups of successive
// processes, then groups of such groups, and so on. The towers of a group are one node of the tree,
// however many each process has. If there are no such groups, or few processes, one level has all.
std::vector<int> tree_levels(int size);

// Where the two halves of a node meet, and how many of `nodes`, which cover it, lie in the first
// half.
int middle_of(TreeNode node);
std::size_t count_left(std::span<const TreeNode> nodes, TreeNode node);

// For callers that add `nodes`, which cover a node, with a stack. After each of them, they add the
// top two sums on the stack this many times.
std::vector<int> additions_in_order(std::span<const TreeNode> nodes, TreeNode node);

}  // namespace belfry
