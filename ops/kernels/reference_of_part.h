// Reference kernels of the nodes that a fused node replaces; its own reference kernel runs them.
#pragma once
#include <vector>

#include "belfry/framework/graph/op.h"

namespace belfry {

// The reference kernel of `op` on these tensors, with the options of the fused node. It must need
// no workspace.
inline KernelRun reference_of_part(const Op& op, const KernelPlan& fused,
                                   const std::vector<TensorType>& inputs,
                                   const std::vector<TensorType>& outputs) {
  KernelPlan part(fused.node(), inputs, outputs, whole_range(op, 0, inputs, outputs));
  part.set_op(op);
  part.set_batch(fused.batch());
  return op.reference(part);
}

}  // namespace belfry
