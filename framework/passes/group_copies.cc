// What a step leaves on the host for nobody who waits, as batch norm's averages by moments of GPUs,
// comes last in it: all small tensors of a GPU that only this needs go there in one launch.
#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Of a tensor. A larger one goes to the host while the GPU computes, by a copy of its own.
constexpr std::int64_t kMostBytes = 1 << 20;

class GroupedCopies {
 public:
  GroupedCopies(PlanGraph& plan, const PlanContext& context)
      : plan_(plan), context_(context), consumers_(consumers_of(plan)) {}

  void run() {
    find_idle();
    find_awaited();
    std::vector<int> copies;
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      if (may_be_last(static_cast<int>(n))) copies.push_back(static_cast<int>(n));
    if (copies.empty()) return;
    const std::vector<char> last = reached_from(consumers_, copies);
    reorder(copies, group(copies), last);
  }

 private:
  bool on_gpu(int device) const { return context_.device(device).on_gpu(); }
  // Brings a tensor from a GPU to the host.
  bool comes_from_gpu(const PlanNode& node) const {
    return node.op == &kCopy && !on_gpu(node.device()) && on_gpu(plan_.device(node.inputs[0]));
  }
  bool is_of_gpu(const PlanNode& node) const {
    return node.launches() &&
           (std::ranges::any_of(node.devices, [&](int d) { return on_gpu(d); }) ||
            comes_from_gpu(node));
  }

  // Groups of nodes, on a GPU, for which nothing else waits. They need not wait for the host.
  void find_idle() {
    idle_.resize(plan_.nodes.size());
    for (std::size_t n = plan_.nodes.size(); n-- > 0;)
      idle_[n] = plan_.nodes[n].op == &kNoOp && on_gpu(plan_.nodes[n].device()) &&
                 std::ranges::all_of(consumers_[n], [&](int user) { return idle_[at(user)]; });
    for (std::vector<int>& users : consumers_)
      std::erase_if(users, [&](int user) { return idle_[at(user)]; });
  }

  // awaited_[n]: it works on a GPU, is fetched or eager, or such a node waits for it, in this run
  // or, by a variable that it writes, in the next one. The second round knows of all variables.
  void find_awaited() {
    awaited_.resize(plan_.nodes.size());
    for (int round = 0; round < 2; ++round)
      for (std::size_t n = plan_.nodes.size(); n-- > 0;) awaited_[n] = is_awaited(n);
  }

  bool is_awaited(std::size_t n) const {
    const PlanNode& node = plan_.nodes[n];
    if (idle_[n]) return false;
    if (node.fetch() >= 0 || is_of_gpu(node) || any_awaited(consumers_[n])) return true;
    if (node.launches() && node.node->origin().eager) return true;
    const auto written = std::span(node.inputs).first(at(node.writes()));
    return std::ranges::any_of(written, [&](Value v) { return awaited_[at(v.node)]; });
  }

  bool any_awaited(const std::vector<int>& nodes) const {
    return std::ranges::any_of(nodes, [&](int n) { return awaited_[at(n)]; });
  }

  bool may_be_last(int n) const {
    const PlanNode& node = plan_.node(n);
    return comes_from_gpu(node) && node.fetch() < 0 && node.types[0].bytes() <= kMostBytes &&
           !any_awaited(consumers_[at(n)]);
  }

  // Appends a node per memory space that copies what these do, and gives it their users.
  std::vector<int> group(const std::vector<int>& copies) {
    std::map<int, int> group_of;  // by memory space
    std::vector<int> groups;
    for (const int copy : copies) {
      const Value source = plan_.node(copy).inputs[0];
      const auto [found, fresh] = group_of.emplace(
          context_.device(plan_.device(source)).memory_space, static_cast<int>(plan_.nodes.size()));
      const int n = found->second;
      if (fresh) {
        groups.push_back(n);
        plan_.nodes.push_back({&kCopy, plan_.node(copy).node, {}, {}, {}, {}});
      }
      PlanNode& all = plan_.nodes[at(n)];
      const PlanNode& one = plan_.node(copy);
      const Value moved{n, static_cast<int>(all.inputs.size())};
      all.inputs.push_back(source);
      all.types.push_back(one.types[0]);
      all.devices.push_back(one.device());
      all.after.insert(all.after.end(), one.after.begin(), one.after.end());
      for (const int user : consumers_[at(copy)]) {
        std::ranges::replace(plan_.nodes[at(user)].inputs, Value{copy, 0}, moved);
        std::ranges::replace(plan_.nodes[at(user)].after, copy, n);
      }
    }
    return groups;
  }

  // The groups instead of the copies, and behind them what is `last` because of them.
  void reorder(const std::vector<int>& copies, const std::vector<int>& groups,
               const std::vector<char>& last) {
    std::vector<int> order, behind;
    for (std::size_t n = 0; n < last.size(); ++n) {
      if (idle_[n])
        std::erase_if(plan_.nodes[n].after, [&](int before) { return last[at(before)]; });
      if (!last[n])
        order.push_back(static_cast<int>(n));
      else if (!std::ranges::binary_search(copies, static_cast<int>(n)))
        behind.push_back(static_cast<int>(n));
    }
    order.insert(order.end(), groups.begin(), groups.end());
    order.insert(order.end(), behind.begin(), behind.end());
    keep_nodes(plan_, order);
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> consumers_;  // without idle ones
  std::vector<char> idle_, awaited_;
};

}  // namespace

void group_copies(PlanGraph& plan, const PlanContext& context) {
  GroupedCopies(plan, context).run();
}

}  // namespace belfry
