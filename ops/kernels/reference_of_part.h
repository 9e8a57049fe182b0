// The reference kernels of the nodes that a fused one stands for, which make its own.
#pragma once
#include <vector>

#include "belfry/framework/graph/op.h"

namespace belfry {

// That of `op` on such tensors, with the options of the fused node; it takes no workspace.
inline KernelRun reference_of_part(const Op& op, const KernelPlan& fused,
                                   const std::vector<TensorType>& inputs,
                                   const std::vector<TensorType>& outputs) {
  KernelPlan part(fused.node(), inputs, outputs, whole_range(op, 0, inputs, outputs));
  part.set_op(op);
  part.set_batch(fused.batch());
  return op.reference(part);
}

}  // namespace belfry
