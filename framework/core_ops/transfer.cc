#include "belfry/framework/core_ops/transfer.h"

namespace belfry {

const Op kTransfer{.name = "Transfer",
                   .inputs = 1,
                   .shape = same_as_input,
                   .no_gradient = "plans make it after gradients are built",
                   .alias = true};

}  // namespace belfry
