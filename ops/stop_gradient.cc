#include "belfry/ops/stop_gradient.h"

namespace belfry {

const Op kStopGradient{.name = "StopGradient",
                       .inputs = 1,
                       .shape = same_as_input,
                       .no_gradient = "it stops gradients on purpose",
                       .alias = true};

Output stop_gradient(Output x, At at) { return x.graph().add(kStopGradient, {x}, at).output(); }

}  // namespace belfry
