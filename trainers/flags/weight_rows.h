// The rows of the options that choose weights of a run.
#pragma once
#include <optional>
#include <string>

#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {

// The variables that these options set.
struct WeightFlags {
  WeightChoice& weights;
  std::optional<CheckpointChoice>& checkpoint;
};

// The rows of --weights and --checkpoint, with `prefix` before the names.
Options<WeightFlags> weight_options(const std::string& prefix);

// The variables that these options set.
struct NameFlags {
  std::string& names;  // find_name_rules()
  bool& partial;
};

// The rows of --names and --partial. `what` says what the names are of: "`load`".
Options<NameFlags> name_options(const std::string& what);

}  // namespace belfry
