// Recurrences on hosts: a product of matrices per time, then one pass over gates and states.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/ops/recurrent/recurrence_impl.h"

namespace belfry::kernels {

// Kernels of LstmStep and GruStep, and of LstmGradStep and GruGradStep.
template <class Step>
KernelRun recurrence(KernelPlan& plan, const Sequences& sequences);
template <class Step>
KernelRun recurrence_grad(KernelPlan& plan, const Sequences& sequences);

// The lengths that input `i` has, or none. Throws InvalidArgument naming the node if one is not in
// [0, time].
Lengths checked_lengths(const Node& node, const Sequences& sequences, const KernelPointers& p,
                        std::size_t i);
// Throws that error.
[[noreturn]] void refuse_length(const Node& node, std::int64_t row, std::int64_t length,
                                std::int64_t time);

}  // namespace belfry::kernels
