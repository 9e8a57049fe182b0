#include "belfry/framework/core_ops/identity.h"

namespace belfry {
const Op kIdentity{.name = "Identity",
                   .inputs = 1,
                   .shape = same_as_input,
                   .gradient = same_gradient,
                   .alias = true};

Output identity(Output x, At at) { return x.graph().add(kIdentity, {x}, at).output(); }

}  // namespace belfry
