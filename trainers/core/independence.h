// How reports tell whether the number of devices changes bits.
#pragma once
#include <string>

#include "belfry/framework/base/json.h"

namespace belfry {

// Adds k_independent, and k_dependent_because, which is null if it is. `because`:
// Trainer::k_dependence().
void add_k_dependence(Json& report, const std::string& because);

}  // namespace belfry
