// Assign, AssignAdd, AssignSub: writes to a variable. Output 0 is the value written.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kAssign;
extern const Op kAssignAdd;
extern const Op kAssignSub;

// Placed on the variable's device, regardless of scopes.
Node& assign(Variable variable, Output value, At at = {});
Node& assign_add(Variable variable, Output delta, At at = {});
Node& assign_sub(Variable variable, Output delta, At at = {});

}  // namespace belfry
