#include "belfry/framework/log.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {

KernelRun prepare_kernel(const Op& op, KernelPlan& kernel, bool reference) {
  if (op.cpu && !(reference && op.reference))
    if (KernelRun run = op.cpu(kernel)) return run;
  require<NotFound>(op.reference != nullptr, kernel.node().describe(), ": no host kernel for ",
                    name_of(kernel.dtype()));
  kernel.workspace(0);
  return op.reference(kernel);
}

void prepare_kernels(Plan& plan, const PlanContext& context) {
  for (Launch& launch : plan.launches) {
    const PlanNode& node = plan.node(launch.node);
    if (context.devices[at(plan.lanes[at(launch.lane)].device)]->declared) continue;
    if (node.fusion) {
      launch.run = prepare_fused_update(plan, node, context.reference_kernels);
      continue;
    }
    const std::vector<TensorType> inputs = plan.input_types(node);
    KernelPlan kernel(*node.node, inputs, node.types, launch.range);
    launch.run = prepare_kernel(*node.op, kernel, context.reference_kernels);
    launch.workspace_bytes = kernel.workspace_bytes();
  }
}

}  // namespace belfry
