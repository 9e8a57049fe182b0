// The kernel with which a host runs an op.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

// The fast kernel of KernelPlan::op() for hosts. The reference kernel if `reference` asks for it,
// or if there is no other for these types. Tensors of 16 bits that Op::half does not cover take the
// reference kernel, in f32; these may have pitches, as in GpuKernelMaker::prepare(). Throws
// NotFoundError if the op has neither.
KernelRun prepare_kernel(KernelPlan& kernel, bool reference,
                         std::span<const std::int64_t> pitches = {});

}  // namespace belfry
