// What a training program tells without training: --dry_run and --explain.
#pragma once
#include "belfry/framework/explain.h"
#include "belfry/framework/json.h"
#include "belfry/trainers/console.h"
#include "belfry/trainers/flags.h"
#include "belfry/trainers/trainer.h"

namespace belfry {

// Prints what each device holds by the plans so far, and returns it: [{device, variables,
// variable_bytes, peak_bytes}].
Json print_device_use(const Session& session, Console& console);

// Throws FlagError, with the nearest names, if the trainer's graph has no node of that name.
const Node& node_to_explain(Trainer& trainer, const TrainFlags& flags);

// {node, type, requested, device, scopes: [{file, line, what}], colocation: [node], pulls: [{who,
// whom, why}], candidates: [{device, kept, reason}], load: {device: elements}, fallback: text or
// null}
Json to_json(const Explanation& explanation);

}  // namespace belfry
