// Flags of tf_cnn_benchmarks for which Belfry leaves no choice.
#pragma once
#include <vector>

#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {

// Each flag takes only the value that names what happens anyway, if there is one. Any other value
// is refused: the error names our flag to write instead, if the program has it, or says that there
// is no counterpart.
std::vector<FlagSpelling> tf_fixed_spellings(const FlagDefaults& program);

}  // namespace belfry
