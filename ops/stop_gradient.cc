#include "belfry/ops/stop_gradient.h"

#include "belfry/framework/graph/shards.h"

namespace belfry {

namespace {

std::vector<Output> nothing(const Node&, std::span<const Output>) { return {Output()}; }

}  // namespace

const Op kStopGradient{.name = "StopGradient",
                       .inputs = 1,
                       .shape = same_as_input,
                       .gradient = nothing,
                       .shards = reshaped_shards,
                       .alias = true};

Output stop_gradient(Output x, At at) { return x.graph().add(kStopGradient, {x}, at).output(); }

}  // namespace belfry
