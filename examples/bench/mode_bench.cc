#include "mode_bench.h"

#include <limits>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/util/busy.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

// Each process holds the samples of all processes.
HeldMemory held_by(const Trainer& trainer, const Dataset& train) {
  return {.data = bytes_of_batch(train, trainer.built().batches().samples_per_step())};
}

void train_mode_watched(Trainer& trainer, const StallOptions& stall) {
  const StallWatch watch(trainer.loop().activity(), stall);
  trainer.train();
}

// `first`: nothing ran before it.
void run_once(const TrainerOptions& options, const Dataset& train, const StepTimer::Options& timing,
              const StallOptions& stall, bool first, ModeRuns& runs) {
  const auto timer = std::make_shared<StepTimer>(timing);
  TrainerOptions timed = runs.mode.applied_to(options);
  timed.callbacks = {timer};
  const double began = seconds_now();
  runs.memory.rss_before_plan_bytes = resident_bytes();
  const std::unique_ptr<Trainer> trainer = [&] {
    const Busy busy(cat("building the model for ", runs.mode.name()));
    return std::make_unique<Trainer>(find_trainer(runs.mode.trainer), std::move(timed), train);
  }();
  if (runs.speeds.empty())
    runs.startup_seconds = first ? seconds_since_start() : seconds_now() - began;
  train_mode_watched(*trainer, stall);
  runs.memory.peak_rss_bytes = peak_resident_bytes();
  runs.memory.planned_bytes =
      planned_bytes(trainer->session().memory_report(), held_by(*trainer, train));
  const std::span<const double> seconds = timer->seconds();
  const auto samples = static_cast<double>(trainer->built().batches().samples_per_step());
  runs.speeds.push_back(speed_of(samples, seconds).mean);
  runs.seconds.insert(runs.seconds.end(), seconds.begin(), seconds.end());
  runs.total_seconds += timer->total_seconds();
  const std::string params = params_hash(trainer->session(), trainer->graph());
  const std::string state = state_hash(trainer->session(), trainer->graph());
  runs.chosen = chosen_mode(runs.mode, trainer->built());
  const bool must_repeat = is_canonical(runs.mode, trainer->built()) && repeats(options);
  require<InternalError>(!must_repeat || runs.state_hash.empty() || runs.state_hash == state,
                         runs.mode.name(), " ended with other bits in a second run");
  runs.params_hash = params;
  runs.step_flops = 2 * step_multiply_adds(trainer->built().nodes(),
                                           trainer->built().batches().batches_per_step());
  runs.shards = trainer->built().options().shards;
  runs.k_dependent_because = k_dependence(trainer->built());
  runs.state_hash = state;
  runs.loss_scale = trainer->built().loss_scale();
  runs.skipped_steps = trainer->record().watch().skipped_steps();
  runs.divergence = find_divergence(trainer->built(), trainer->record());
}

}  // namespace

ModePlan plan_mode(const Mode& mode, const TrainerOptions& options, const Dataset& train) {
  ModePlan plan{.mode = mode};
  TrainerOptions dry = options;
  dry.on_nonfinite = OnNonfinite::kContinue;  // as in runs
  dry.session.dry_run = true;
  dry.session.log_device_placement = false;
  const std::unique_ptr<Trainer> trainer = make_in_mode(mode, dry, train, plan.refusal);
  if (!trainer) return plan;
  plan.choice = trainer->built().choice();
  plan.shards = shard_report(trainer->built());
  plan.use = trainer->session().device_use();
  plan.step = planned_step(trainer->built());
  plan.memory = trainer->session().memory_report();
  plan.held = held_by(*trainer, train);
  plan.bytes = host_bytes(plan.memory, plan.held);
  return plan;
}

void require_memory(const ModePlan& plan, std::int64_t available) {
  const std::string refusal =
      memory_refusal(plan.mode.name(), plan.bytes, available,
                     "use a smaller batch, smaller samples, fewer devices or batches per step");
  require<FlagError>(refusal.empty(), refusal);
}

std::vector<ModeRuns> bench_modes(std::span<const Mode> modes, const TrainerOptions& options,
                                  const Dataset& train, const ModeBenchOptions& bench) {
  require(bench.steps >= 1 && bench.timer.warmup >= 0 && bench.rounds >= 1,
          "a benchmark needs steps and rounds, not ", bench.steps, " and ", bench.rounds);
  TrainerOptions common = options;
  common.epochs = std::numeric_limits<int>::max();
  common.max_steps = bench.timer.warmup + bench.steps;
  common.on_nonfinite = OnNonfinite::kContinue;
  common.warn_of_loss = false;  // else each round would warn; ModeRuns has it
  std::vector<ModeRuns> all;
  for (const Mode& mode : modes) all.push_back({.mode = mode});
  for (int round = 1; round <= bench.rounds; ++round)
    for (ModeRuns& runs : all) {
      StepTimer::Options timing = bench.timer;
      if (bench.rounds > 1 || all.size() > 1)
        timing.what = cat("round ", round, " of ", bench.rounds, ": ", runs.mode.name(), ": ");
      run_once(common, train, timing, bench.stall, round == 1 && &runs == all.data(), runs);
      if (bench.on_run) bench.on_run(round, runs);
    }
  return all;
}

}  // namespace belfry
