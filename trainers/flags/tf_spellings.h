// Translates the flags of tf_cnn_benchmarks, as users' scripts have them, into ours.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {

// The spellings for programs that train, or for benchmarks. Each flag does what it does there, with
// two exceptions. Gradients of replicas are averaged (there they are added up). Limits of an
// all_reduce_spec are bytes (there the text says bytes, and the code counts elements). A flag
// without counterpart is refused; the error names a flag of the program to write instead.
std::vector<FlagSpelling> tf_spellings(const FlagDefaults& program);

// The spellings for programs that train nothing: each is refused, for this reason.
std::vector<FlagSpelling> tf_refusals(const std::string& why);

}  // namespace belfry
