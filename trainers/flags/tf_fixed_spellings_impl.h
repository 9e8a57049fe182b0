// The flags of tf_cnn_benchmarks for what Belfry leaves no choice of.
#pragma once
#include <vector>

#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {

// Each takes the value, if there is one, that says what happens anyway. All else is refused, with
// the flag of ours to write, by names that the program has, or with that there is nothing like it.
std::vector<FlagSpelling> tf_fixed_spellings(const FlagDefaults& program);

}  // namespace belfry
