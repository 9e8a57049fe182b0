// Weights in the form that a library wants. Only plans make these nodes.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Input: weights. Output: a row of f32, as long as the packed form (PlanNode::packed_form()) needs.
extern const Op kPackWeights;

}  // namespace belfry
