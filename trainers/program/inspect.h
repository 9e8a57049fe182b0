// The output of a training program that does not train: --summary, --dry_run and --explain.
#pragma once
#include "belfry/framework/graph/explanation.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

// Text for people about what decides the bits of a run: "the global batch of 256 has 2 shards", and
// what that means for other numbers of devices. If the default --shards gives other bits there, it
// names one that gives equal bits.
std::string shards_text(const ShardReport& report);

// Prints what the flags ask for, and writes it as JSON to `file` if there is one: with --dry_run a
// member planned_bytes, that of --memory_report, and
// devices: [{device, variables, variable_bytes, peak_bytes}], and where logical GPUs share
// physical ones physical_gpus: [{physical_gpu, devices, peak_bytes}], and of several processes
// step: to_json(PlannedStep) and note; with --summary the members of
// to_json(ModelSummary); with --explain {node, type,
// requested, device, scopes: [{file, line, what}], colocation: [node], pulls: [{who, whom, why}],
// candidates: [{device, kept, reason}], load: {device: elements}, fallback: text or null, shards:
// null or {count, runs, outputs: [{type, division, added_by: [node]}], copies: [{name, bytes,
// users: [node]}]}}. `test` may be null. `memory`, if there is one, gets the report of
// --memory_report. Throws FlagError, with the nearest names, if there is no node to explain.
void inspect(const TrainFlags& flags, TrainerOptions options, const Dataset& train,
             const Dataset* test, Console& console, OutputFile* file, OutputFile* memory);

}  // namespace belfry
