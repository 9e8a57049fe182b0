// The flags that choose weights of a run, and names of other programs.
#pragma once
#include <optional>
#include <string>

#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {

void add_weight_flags(FlagParser& parser, const std::string& prefix, WeightChoice& weights,
                      std::optional<CheckpointChoice>& checkpoint);
// Adds only --checkpoint.
void add_checkpoint_flag(FlagParser& parser, const std::string& prefix,
                         std::optional<CheckpointChoice>& checkpoint);
// Adds --names and --partial; `what` says what the names are of.
void add_name_flags(FlagParser& parser, const std::string& what, std::string& names, bool& partial);

}  // namespace belfry
