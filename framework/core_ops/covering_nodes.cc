#include "belfry/framework/core_ops/covering_nodes.h"

#include <algorithm>
#include <bit>

namespace belfry {
namespace {

void add_covering(TreeNode node, TreeNode range, std::vector<TreeNode>& found) {
  if (range.begin <= node.begin && node.end <= range.end) return found.push_back(node);
  if (node.end <= range.begin || range.end <= node.begin) return;
  add_covering({node.begin, middle_of(node)}, range, found);
  add_covering({middle_of(node), node.end}, range, found);
}

void add_in_order(std::span<const TreeNode> nodes, TreeNode node, std::vector<int>& additions) {
  if (nodes.size() == 1) return additions.push_back(0);
  const std::size_t left = count_left(nodes, node);
  add_in_order(nodes.first(left), {node.begin, middle_of(node)}, additions);
  add_in_order(nodes.subspan(left), {middle_of(node), node.end}, additions);
  ++additions.back();
}

}  // namespace

std::vector<TreeNode> covering_nodes(TreeNode range, int leaves) {
  std::vector<TreeNode> found;
  add_covering({0, leaves}, range, found);
  return found;
}

std::vector<TreeNode> covering_nodes_of(int rank, int size, int towers) {
  return covering_nodes({rank * towers, (rank + 1) * towers}, size * towers);
}

std::vector<TreeNode> all_covering_nodes(int size, int towers) {
  std::vector<TreeNode> all;
  for (int r = 0; r < size; ++r) {
    const std::vector<TreeNode> some = covering_nodes_of(r, size, towers);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::int64_t count_nodes_of_others(int rank, int size, int towers) {
  return std::ssize(all_covering_nodes(size, towers)) -
         std::ssize(covering_nodes_of(rank, size, towers));
}

std::vector<int> tree_levels(int size) {
  constexpr int kMostPeers = 16;
  // The tree is halved again and again, so its nodes are halves, quarters, ... of all.
  const auto are_nodes = [](int group, int of) {
    return of % group == 0 && std::has_single_bit(static_cast<unsigned>(of / group));
  };
  std::vector<int> levels;
  for (int left = size; left > 1; left /= levels.back()) {
    int group = kMostPeers;
    while (group > 1 && !are_nodes(group, left)) --group;
    levels.push_back(left <= kMostPeers || group == 1 ? left : group);
  }
  return levels;
}

int middle_of(TreeNode node) { return node.begin + (node.end - node.begin + 1) / 2; }

std::size_t count_left(std::span<const TreeNode> nodes, TreeNode node) {
  const auto right = std::ranges::lower_bound(nodes, middle_of(node), {}, &TreeNode::begin);
  return static_cast<std::size_t>(right - nodes.begin());
}

std::vector<int> additions_in_order(std::span<const TreeNode> nodes, TreeNode node) {
  std::vector<int> additions;
  add_in_order(nodes, node, additions);
  return additions;
}

}  // namespace belfry
