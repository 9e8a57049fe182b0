// The flags of tf_cnn_benchmarks, as the scripts of its users have them, in ours.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_spellings.h"

namespace belfry {

// For programs that train, or benchmarks. Each does what it does there, but for what the flags of
// ours say otherwise: gradients of replicas are averaged (there they are added up), and limits of
// an all_reduce_spec are bytes (there the text says bytes, and the code counts elements). What has
// no counterpart is refused with what to write, by flags that the program has.
std::vector<FlagSpelling> tf_spellings(const FlagDefaults& program);

// For programs that train nothing: each is refused, for this reason.
std::vector<FlagSpelling> tf_refusals(const std::string& why);

}  // namespace belfry
