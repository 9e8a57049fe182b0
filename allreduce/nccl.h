// nccl: NCCL's all-reduce; and the strategies of several processes. Steps on GPUs do not call NCCL
// yet, and there is one process, so all of them can be named, and are refused when gradients are to
// be combined.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// Throws InvalidArgument for more than one tower: NCCL needs GPUs. There is no silent fallback.
// nccl/xring, nccl/rechd, nccl/pscpu and pscpu/pscpu of specs are refused because they need several
// processes.
GradientTable allreduce_nccl(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                             At at = {});

}  // namespace belfry
