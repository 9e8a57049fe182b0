// Groups copies to the host whose results no GPU needs, such as batch norm's averages of moments
// from GPUs. They come last in the step. All small tensors of a GPU that only such nodes need go to
// the host in one launch.
#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// A larger tensor goes to the host by a separate copy, while the GPU computes.
constexpr std::int64_t kMostBytes = 1 << 20;

class GroupedCopies {
 public:
  GroupedCopies(PlanGraph& plan, const PlanContext& context)
      : plan_(plan), context_(context), consumers_(consumers_of(plan)) {}

  void run() {
    find_idle();
    find_awaited();
    std::vector<NodeIndex> copies;
    for (const NodeIndex n : plan_.nodes.indices())
      if (may_be_last(n)) copies.push_back(n);
    if (copies.empty()) return;
    Indexed<PlanNode, char> last = reached_from(consumers_, copies);
    for (const NodeIndex n : last.indices()) last[n] = last[n] && !idle_[n];
    reorder(copies, group(copies), last);
  }

 private:
  bool on_gpu(int device) const { return context_.device(device).on_gpu(); }
  // Whether the node copies a tensor from a GPU to the host.
  bool comes_from_gpu(const PlanNode& node) const {
    return node.op == &kCopy && !on_gpu(node.device()) && on_gpu(plan_.device(node.inputs[0]));
  }
  bool is_of_gpu(const PlanNode& node) const {
    return node.launches() &&
           (std::ranges::any_of(node.devices, [&](int d) { return on_gpu(d); }) ||
            comes_from_gpu(node));
  }

  // Finds groups of nodes on a GPU that no other node waits for. They need not wait for the host.
  void find_idle() {
    idle_.resize(plan_.nodes.size());
    for (const NodeIndex n : plan_.nodes.indices() | std::views::reverse)
      idle_[n] = plan_.nodes[n].op == &kNoOp && on_gpu(plan_.nodes[n].device()) &&
                 std::ranges::all_of(consumers_[n], [&](NodeIndex user) { return idle_[user]; });
  }

  // awaited_[n]: n works on a GPU, is fetched or is eager, or some such node waits for n. That node
  // may be in the next run, if n writes a variable. The second round knows all variables.
  void find_awaited() {
    awaited_.resize(plan_.nodes.size());
    for (int round = 0; round < 2; ++round)
      for (const NodeIndex n : plan_.nodes.indices() | std::views::reverse)
        awaited_[n] = is_awaited(n);
  }

  bool is_awaited(NodeIndex n) const {
    const PlanNode& node = plan_.nodes[n];
    if (idle_[n]) return false;
    if (node.fetch() >= 0 || is_of_gpu(node) || any_awaited(consumers_[n])) return true;
    if (node.launches() && node.node->origin().eager) return true;
    const auto written = std::span(node.inputs).first(at(node.writes()));
    return std::ranges::any_of(written, [&](Value v) { return awaited_[v.node]; });
  }

  bool any_awaited(std::span<const NodeIndex> nodes) const {
    return std::ranges::any_of(nodes, [&](NodeIndex n) { return awaited_[n]; });
  }

  bool may_be_last(NodeIndex n) const {
    const PlanNode& node = plan_.node(n);
    return comes_from_gpu(node) && node.fetch() < 0 && node.types[0].bytes() <= kMostBytes &&
           !any_awaited(consumers_[n]);
  }

  // Appends a node per memory space that does the work of `copies`, and gives it their users.
  std::vector<NodeIndex> group(const std::vector<NodeIndex>& copies) {
    std::map<int, NodeIndex> group_of;  // by memory space
    std::vector<NodeIndex> groups;
    for (const NodeIndex copy : copies) {
      const Value source = plan_.node(copy).inputs[0];
      const auto [found, fresh] =
          group_of.emplace(context_.device(plan_.device(source)).memory_space, plan_.nodes.next());
      const NodeIndex n = found->second;
      if (fresh) {
        groups.push_back(n);
        plan_.nodes.push_back({&kCopy, plan_.node(copy).node, {}, {}, {}, {}});
      }
      PlanNode& all = plan_.nodes[n];
      const PlanNode& one = plan_.node(copy);
      const Value moved{n, static_cast<int>(all.inputs.size())};
      all.inputs.push_back(source);
      all.types.push_back(one.types[0]);
      all.devices.push_back(one.device());
      all.after.insert(all.after.end(), one.after.begin(), one.after.end());
      for (const NodeIndex user : consumers_[copy]) {
        if (idle_[user]) continue;
        std::ranges::replace(plan_.nodes[user].inputs, Value{copy, 0}, moved);
        std::ranges::replace(plan_.nodes[user].after, copy, n);
      }
    }
    return groups;
  }

  // Replaces the copies by the groups, and puts the nodes of `last` after the groups.
  void reorder(const std::vector<NodeIndex>& copies, const std::vector<NodeIndex>& groups,
               const Indexed<PlanNode, char>& last) {
    std::vector<NodeIndex> order, behind;
    for (const NodeIndex n : last.indices()) {
      if (idle_[n])
        std::erase_if(plan_.nodes[n].after, [&](NodeIndex before) { return last[before]; });
      if (!last[n])
        order.push_back(n);
      else if (!std::ranges::binary_search(copies, n))
        behind.push_back(n);
    }
    order.insert(order.end(), groups.begin(), groups.end());
    order.insert(order.end(), behind.begin(), behind.end());
    keep_nodes(plan_, order);
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  Consumers consumers_;
  Indexed<PlanNode, char> idle_, awaited_;
};

}  // namespace

void group_copies(PlanGraph& plan, const PlanContext& context) {
  GroupedCopies(plan, context).run();
}

}  // namespace belfry
