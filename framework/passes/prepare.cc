#include "belfry/framework/log.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

KernelRun prepare(const PlanNode& node, KernelPlan& kernel, bool reference) {
  const Op& op = *node.op;
  if (op.cpu && !(reference && op.reference))
    if (KernelRun run = op.cpu(kernel)) return run;
  require<NotFound>(op.reference != nullptr, node.node->describe(), ": no host kernel for ",
                    name_of(kernel.dtype()));
  kernel.workspace(0);
  return op.reference(kernel);
}

}  // namespace

void prepare_kernels(Plan& plan, const PlanContext& context) {
  for (Launch& launch : plan.launches) {
    const PlanNode& node = plan.node(launch.node);
    if (context.devices[at(plan.lanes[at(launch.lane)].device)]->declared) continue;
    const std::vector<TensorType> inputs = plan.input_types(node);
    KernelPlan kernel(*node.node, inputs, node.types, launch.range);
    launch.run = prepare(node, kernel, context.reference_kernels);
    launch.workspace_bytes = kernel.workspace_bytes();
  }
}

}  // namespace belfry
