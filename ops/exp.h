// Exp: e^x.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

extern const Op kExp;

Output exp(Output x, At at = {});

}  // namespace belfry
