// The kernel by which a host runs an op.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

// The own kernel for hosts of KernelPlan::op(), or its reference kernel: that where `reference`
// asks for it, or there is no other for these types. For tensors of 16 bits, which Op::half does
// not cover: the reference kernel, on f32. Throws NotFound if the op has neither.
KernelRun prepare_kernel(KernelPlan& kernel, bool reference);

}  // namespace belfry
