// What a training program tells without training: --dry_run and --explain.
#pragma once
#include <string_view>

#include "belfry/framework/explain.h"
#include "belfry/framework/json.h"
#include "belfry/trainers/console.h"
#include "belfry/trainers/trainer.h"

namespace belfry {

// Compiles all that training would, and prints each node's line and each device's. `predicts`: the
// program evaluates too. Returns the devices' lines as {"devices": [{device, variables,
// variable_bytes, peak_bytes}]}.
Json dry_run(Trainer& trainer, bool predicts, Console& console);

// Throws FlagError, with the nearest names, if the trainer's graph has no node `name`.
Explanation explain_node(Trainer& trainer, std::string_view name);

// {node, type, requested, device, scopes: [{file, line, what}], colocation: [node], candidates:
// [{device, kept, reason}], load: {device: elements}, fallback: text or null}
Json to_json(const Explanation& explanation);

}  // namespace belfry
