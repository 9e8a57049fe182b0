// Messages of a GPU go by NCCL. Without NCCL they go through host memory.
#include <algorithm>

#include "belfry/framework/core_ops/add_pieces.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

constexpr int kHost = 0;  // the first CPU

bool has_nccl(const Device& device) {
  return !device.backend || device.backend->nccl().version > 0;  // no backend: only a plan
}

}  // namespace

void place_messages(PlanGraph& plan, const PlanContext& context) {
  for (PlanNode& node : plan.nodes) {
    const Device& device = context.device(node.device());
    if (!device.on_gpu()) continue;
    const bool is_made_of_messages =
        node.op == &kAddPieces && plan.device(node.inputs.back()) == kHost;
    if (!node.op->cpu_only && !is_made_of_messages && (!node.op->exchange || has_nccl(device)))
      continue;
    std::ranges::fill(node.devices, kHost);
    const auto assigned = std::ranges::find(plan.assignments, node.node, &Assignment::node);
    if (node.op == &node.node->op() && assigned != plan.assignments.end()) assigned->device = kHost;
  }
}

}  // namespace belfry
