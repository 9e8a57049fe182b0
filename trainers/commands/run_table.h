// Tables over runs (`belfry runs`).
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/commands/checkpoint_listing.h"
#include "belfry/trainers/runs/run_saver.h"

namespace belfry {

// The run directories in `folders`, at any depth, or themselves; sorted within each folder, and
// each one once. A run is not searched for others. Throws NotFoundError for a folder without any.
std::vector<std::string> runs_below(std::span<const std::string> folders,
                                    FileSystem& files = local_file_system());

// A table for each program: runs, their options that differ, states, steps, metrics and hashes. A
// second table has mean and sample deviation over finished runs whose options are equal but for the
// seed; of those with the same seed, the last one counts. `counts`: whether runs that differ in an
// option are different. Without `metrics`, loss and accuracy of the validation; where no run has
// one, of the training.
//
// {programs: [{program, differ: [option], runs: [{run, state, options, steps, params_hash, error,
// metrics: {NAME: {last, best, best_step}}}], groups: [{options, runs, metrics: {NAME: {last:
// {mean, deviation}, best: {...}}}}]}]}. States are running, finished, stopped, failed, and killed,
// which left no summary. Throws NotFoundError for a metric that no run has.
Listing tabulate_runs(std::span<const std::string> paths, std::span<const BestMetric> metrics,
                      bool (*counts)(std::string_view option),
                      FileSystem& files = local_file_system());

}  // namespace belfry
