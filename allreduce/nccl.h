// nccl: one all-reduce of NCCL per tensor, on GPUs; and the strategies of several processes, which
// can be named, and are refused when gradients are to be combined.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each physical GPU sums what its towers give, then NCCL sums these, over the GPUs of all processes
// of a run: no canonical order. Throws InvalidArgument if a tower is not on a GPU; there is no
// silent fallback. nccl/xring, nccl/rechd, nccl/pscpu and pscpu/pscpu of specs cannot be built.
GradientTable allreduce_nccl(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                             At at = {});

}  // namespace belfry
