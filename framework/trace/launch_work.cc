#include "belfry/framework/trace/launch_work.h"

#include <vector>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/graph/op_work.h"

namespace belfry {
namespace {

std::int64_t bytes_of(const std::vector<TensorType>& types) {
  std::int64_t bytes = 0;
  for (const TensorType& type : types) bytes += type.bytes();
  return bytes;
}

}  // namespace

LaunchWork work_of(const Plan& plan, NodeIndex node, int shard) {
  const PlanNode& of = plan.node(node);
  const bool divided = of.sharding.divides();
  const std::int64_t samples = divided ? plan.samples(of.device(), shard).size() : 0;
  const std::vector<TensorType> inputs =
      divided ? plan.input_types(of, samples) : plan.input_types(of);
  const std::vector<TensorType> outputs = divided ? plan.output_types(of, samples) : of.types;
  LaunchWork work{.bytes = bytes_of(inputs) + bytes_of(outputs)};
  // Nodes that passes have put in its place compute something else.
  const bool is_itself = of.op == &of.node->op() && !of.packed_form();
  if (is_itself) work.flops = 2 * work_of(*of.node, inputs, outputs).multiply_adds;
  return work;
}

const char* phase_of(const PlanNode& node) {
  const NodeOrigin& origin = node.node->origin();
  if (node.fused_update() || node.writes() > 0) return "update";
  if (node.participants() > 0 || node.op == &kTransfer || node.op == &kCopy) return "communication";
  if (origin.forward || node.is_rematerialised()) return "gradient";
  return origin.call > 0 ? "forward" : "other";
}

}  // namespace belfry
