// Flags about the files that a training run writes and resumes from.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/runs/run_checkpoints.h"
#include "belfry/trainers/runs/run_saver.h"

namespace belfry {

class FlagParser;

struct RunFlags {
  std::string directory;        // --run_dir
  std::string resume = "auto";  // "auto", "never" or a path
  std::string load;
  WeightChoice load_weights = WeightChoice::kValidated;
  std::optional<CheckpointChoice> load_checkpoint = {};
  std::string names;     // of the weights that `load` names; "": ours, of a checkpoint
  bool partial = false;  // with `names`: RenamingOptions
  SaveSchedule schedule = {};
  double max_seconds = 0;       // 0: no limit
  std::int64_t hash_every = 0;  // steps; 0: never
  std::int64_t histograms_every = 0;
  std::vector<std::string> histograms = HistogramOptions().patterns;
  // Steps; 0: only before saves. None: ReplicaCheck::kEvery with several processes, else 0.
  std::optional<std::int64_t> check_replicas_every = {};
  std::int64_t check_contribution_every = 0;  // steps; 0: never
  std::int64_t memory_every = 100;
  std::optional<StepRange> traced = {};
  bool print_config = false;
  std::string config_file;         // --config; "" for none
  std::vector<std::string> given;  // names of the given flags about what a run directory keeps
};

// The rows of these flags.
Options<RunFlags> run_options();
// Those of --config and --print_config, which programs that keep nothing of a run have, too.
Options<RunFlags> config_options();

// Notes which flags are given. Throws FlagError for flags that have no use together.
void check_run_flags(const FlagParser& parser, RunFlags& flags, bool overwrite);

// Reads "100-102", or "100" for one step. Throws FlagError unless 1 <= first <= last.
StepRange parse_steps(const std::string& written, std::string_view text);

// Reads "1:12:30:00" (days, hours, minutes, seconds), or fewer parts from the right. Returns
// seconds. Throws FlagError.
double parse_duration(const std::string& written, std::string_view text);

}  // namespace belfry
