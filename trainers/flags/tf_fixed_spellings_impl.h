// Flags of tf_cnn_benchmarks for which Belfry leaves no choice.
#pragma once
#include <vector>

#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {

// Each flag takes the value, if there is one, that names what happens anyway. All else is refused.
// The error names our flag to write instead, if the program has it, or says that there is nothing
// like it.
std::vector<FlagSpelling> tf_fixed_spellings(const FlagDefaults& program);

}  // namespace belfry
