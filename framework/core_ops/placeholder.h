// Placeholder: a tensor that is fed in every run.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kPlaceholder;

// Dimensions may be kUnknownSize; a plan is compiled for the shapes fed.
Output placeholder(Graph& graph, std::string_view name, DType dtype, Shape shape, At at = {});

}  // namespace belfry
