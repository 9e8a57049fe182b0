// Measures training in several modes against each other.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/callbacks/step_timer.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/planned_step.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/modes/modes.h"
#include "belfry/trainers/runs/stall_watch.h"

namespace belfry {

// The memory that a mode would hold; planning allocates none of it.
struct ModePlan {
  Mode mode;
  std::string refusal;      // why the mode cannot serve; all below is then empty
  std::string choice = {};  // the choice of "auto": lines for people
  ShardReport shards = {};
  std::vector<DeviceUse> use;  // per device
  PlannedStep step = {};
  MemoryReport memory = {};
  HeldMemory held = {};    // other memory: batches in flight, and the data set
  std::int64_t bytes = 0;  // host_bytes() of both
};

// Plans a training step in a dry run. `train` has the samples of one step.
ModePlan plan_mode(const Mode& mode, const TrainerOptions& options, const Dataset& train);

// Throws FlagError, naming the mode and both sizes, if a plan needs more than `available` bytes.
void require_memory(const ModePlan& plan, std::int64_t available);

// The results of a mode in all rounds.
struct ModeRuns {
  Mode mode;
  std::optional<Mode> chosen = {};  // what "auto" stood for
  std::vector<double> speeds;       // samples per second, per round
  std::vector<double> seconds;      // of each step, all rounds
  double total_seconds = 0;         // of the loops over these steps
  std::string params_hash, state_hash;
  // From the start of the process, or of a later mode's first round, until steps are planned and
  // variables have their first values.
  double startup_seconds = 0;
  ProcessMemory memory = {};        // of the last round
  double step_flops = 0;            // multiplications and additions of a step (model_summary.h)
  int shards = 1;                   // of the global batch
  std::string k_dependent_because;  // k_dependence()
  std::optional<double> loss_scale = {};  // of the last round
  std::int64_t skipped_steps = 0;         // in it
  Divergence divergence = {};             // of the last round
};

struct ModeBenchOptions {
  std::int64_t steps = 100;  // timed, per round
  StepTimer::Options timer;
  int rounds = 1;
  StallOptions stall = {};  // of each run
  // Called after each run.
  std::function<void(int round, const ModeRuns&)> on_run = {};
};

// Trains for warm-up and timed steps in each mode, always from the first values. A round runs all
// modes, so that slow spells of the machine hit all alike. One session exists at a time. `options`
// says all but the mode. Throws what a mode throws, and InternalError if a canonical mode ends with
// other bits than in the round before.
std::vector<ModeRuns> bench_modes(std::span<const Mode> modes, const TrainerOptions& options,
                                  const Dataset& train, const ModeBenchOptions& bench);

}  // namespace belfry
