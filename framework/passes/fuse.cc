// Puts nodes that work on the same elements into one launch, where their ops say so (Op::fuse). An
// example is batch norm, the sum with a shortcut, and ReLU. Alone, each of them reads its tensors
// from memory and writes its results there; together they take one pass. The pass leaves alone any
// node that comes after a write of a variable. A fusion would make more reads wait for that write,
// and so bind them to another version.
#include <utility>

#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/surroundings.h"

namespace belfry {
namespace {

class NodeFuser {
 public:
  NodeFuser(PlanGraph& plan, const PlanContext& context)
      : plan_(plan), context_(context), consumers_(consumers_of(plan)), free_(plan.nodes.size()) {}

  void run() {
    find_free();
    for (const NodeIndex n : plan_.nodes.indices())
      if (free_[n] && plan_.nodes[n].op->fuse) ask(n);
    if (!made_.empty()) apply();
  }

 private:
  void find_free() {
    std::vector<NodeIndex> writes;
    for (const NodeIndex n : plan_.nodes.indices())
      if (plan_.nodes[n].writes() > 0) writes.push_back(n);
    const Indexed<PlanNode, char> behind_write = reached_from(consumers_, writes);
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& node = plan_.nodes[n];
      free_[n] = !behind_write[n] && !node.reads_shared_storage && node.launches() &&
                 std::holds_alternative<std::monostate>(node.role);
    }
  }

  void ask(NodeIndex n) {
    const PlanNode& node = plan_.nodes[n];
    Surroundings around(plan_, consumers_, free_, n, context_.device(node.device()).on_gpu());
    node.op->fuse(around);
    std::optional<FusedNodes> fused = around.take();
    if (!fused) return;
    for (const NodeIndex member : fused->members) free_[member] = false;
    made_.push_back(std::move(*fused));
  }

  // A new node replaces its root. The root moves to the end until it is dropped, so nodes that only
  // the root used, such as a cast, are dropped as well.
  void apply() {
    const NodeIndex first = plan_.nodes.next();
    std::vector<NodeIndex> roots;
    Replacements replacements;
    decltype(plan_.fused_into) fused_into;
    for (FusedNodes& fused : made_) {
      const NodeIndex root = roots.emplace_back(fused.root);
      for (const NodeIndex member : fused.members)
        fused_into[plan_.node(member).node] = {fused.node.op, fused.node.node};
      for (const NodeIndex member : fused.members)
        if (member != root) replacements.nodes[member] = root;
      for (std::size_t i = 0; i < fused.results.size(); ++i)
        replacements.values[fused.results[i]] = {root, static_cast<int>(i)};
      PlanNode replaced = std::exchange(plan_.nodes[root], std::move(fused.node));
      replacements.nodes[plan_.nodes.add(std::move(replaced))] = root;
    }
    if (replace_or_give_up(plan_, replacements, first, roots))
      plan_.fused_into = std::move(fused_into);
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  Consumers consumers_;
  Indexed<PlanNode, char> free_;  // may become part of a fusion
  std::vector<FusedNodes> made_;
};

}  // namespace

void fuse(PlanGraph& plan, const PlanContext& context) {
  if (context.options.fuse && !context.options.reference_kernels) NodeFuser(plan, context).run();
}

}  // namespace belfry
