// Exp: e^x.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kExp;

Output exp(Output x, At at = {});

}  // namespace belfry
