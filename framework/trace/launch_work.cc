#include "belfry/framework/trace/launch_work.h"

#include <vector>

namespace belfry {
namespace {

constinit MultiplyAdds multiply_adds_of_ops = nullptr;

std::int64_t bytes_of(const std::vector<TensorType>& types) {
  std::int64_t bytes = 0;
  for (const TensorType& type : types) bytes += type.bytes();
  return bytes;
}

}  // namespace

void set_multiply_adds(MultiplyAdds function) { multiply_adds_of_ops = function; }

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
  if (is_itself && multiply_adds_of_ops)
    work.flops = 2 * multiply_adds_of_ops(*of.node, inputs, outputs);
  return work;
}

}  // namespace belfry
