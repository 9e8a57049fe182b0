#include "belfry/trainers/program/program_callbacks.h"

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/callbacks/progress.h"
#include "belfry/trainers/core/training_checkpoint.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/runs/contribution_check.h"
#include "belfry/trainers/runs/metrics_file.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

namespace {

MetricLabels metric_labels(const std::string& name, const RunFlags& run) {
  MetricLabels labels{{"program", name}};
  if (!run.directory.empty()) labels.emplace_back("run", run.directory);
  return labels;
}

}  // namespace

std::shared_ptr<const ReplayCheck> add_callbacks(TrainerOptions& options, const std::string& name,
                                                 const TrainFlags& flags, const Recipe& recipe,
                                                 const ReportFiles& files, Console& console,
                                                 TrainingRun& run, std::optional<double> peak) {
  options.callbacks = run.callbacks();
  options.callbacks.push_back(std::make_shared<Progress>(console, peak));
  options.callbacks.push_back(std::make_shared<Evaluation>(
      console, [&run](Trainer& trainer) { run.stop().look(trainer); }, flags.evaluation));
  const char* const batch = flags.global_batch_size > 0 ? "--global_batch_size" : "--batch_size";
  options.callbacks.push_back(std::make_shared<TellMemory>(
      console, flags.copies_of_state(),
      MemoryLimit{.advice =
                      cat("use a smaller ", batch, options.evaluates_only ? "" : ", --recompute",
                          ", or fewer --devices")}));
  if (flags.early_stop && flags.inspection.replay.empty())
    options.callbacks.push_back(std::make_shared<EarlyStop>(*flags.early_stop, console));
  options.callbacks.insert(options.callbacks.end(), recipe.callbacks.begin(),
                           recipe.callbacks.end());
  const std::int64_t checked = flags.run.check_contribution_every;
  if (checked > 0 && flags.group.processes > 1)
    options.callbacks.push_back(std::make_shared<ContributionCheck>(checked));
  else if (checked > 0)
    log_warning("--check_contribution_every=", checked,
                " changes nothing in one process: no other one could compute gradients again");
  if (files.metrics)
    options.callbacks.push_back(
        std::make_shared<MetricsFile>(*files.metrics, metric_labels(name, flags.run)));
  const std::string& replayed = flags.inspection.replay;
  if (replayed.empty()) return nullptr;
  const std::int64_t begins = run.start().found() ? position_in(*run.start().found()).steps : 0;
  const auto replay = naming_flag<Error>(cat("--replay=", replayed), [&] {
    return std::make_shared<ReplayCheck>(replayed, begins, flags.inspection.replay_step);
  });
  options.callbacks.push_back(replay);
  return replay;
}

}  // namespace belfry
