// The fast host kernels of GroupNorm and its gradient.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

KernelRun group_norm_on_host(KernelPlan& plan);
KernelRun group_norm_gradient_on_host(KernelPlan& plan);

}  // namespace belfry
