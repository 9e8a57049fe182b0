// The flags that choose weights of a run.
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

}  // namespace belfry
