#include "belfry/framework/core_ops/copy_to_host.h"

namespace belfry {
namespace {

// Streams of GPUs copy: prepare_kernels() sees to it.
KernelRun copied_by_streams(KernelPlan&) { return {}; }

}  // namespace

const Op kHeld{.name = "Held",
               .inputs = 0,
               .shape = no_outputs,  // plans know its type
               .no_gradient = "plans make it after gradients are built",
               .storage = true};

const Op kCopyToHost{.name = "CopyToHost",
                     .inputs = kVariadic,
                     .shape = no_outputs,
                     .no_gradient = "plans make it after gradients are built",
                     .reference = copied_by_streams};

}  // namespace belfry
