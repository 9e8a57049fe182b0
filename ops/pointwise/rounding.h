// Floor, Ceil, Round: integers near floating-point numbers. They have no gradient: where they pass
// one on, it is an empty Output.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kFloor;
extern const Op kCeil;
extern const Op kRound;

Output floor(Output x, At at = {});
Output ceil(Output x, At at = {});
// The nearest integer, the even one at ties.
Output round(Output x, At at = {});

}  // namespace belfry
