#include "belfry/trainers/program/ended_run.h"

#include "belfry/framework/base/text.h"

namespace belfry {

std::string why_it_stopped(const TrainFlags& flags, const Trainer& trainer,
                           const TrainingRun& run) {
  const std::string saved = run.saved();
  const bool is_automatic = !flags.run.directory.empty() && flags.run.resume == "auto";
  const char* const resumes =
      is_automatic ? "the same command resumes from there" : "--resume=PATH resumes from there";
  return cat(run.stop().reason(), ": step ", trainer.steps(), " of ",
             trainer.progress().total_steps(), " is complete",
             saved.empty() ? ", and there was nothing to save" : cat("; ", saved, "; ", resumes));
}

void repeat_results(const JsonValue& results, const TrainFlags& flags, const Trainer& trainer,
                    Console& console) {
  const bool stopped_early = flags.early_stop && trainer.steps() < trainer.progress().total_steps();
  console.line(stopped_early
                   ? cat("this run has ended before: --early_stop=", *flags.early_stop,
                         " stopped it after step ", trainer.steps(), " of ",
                         trainer.progress().total_steps(),
                         "; nothing was written. To train on, leave --early_stop out or change it.")
                   : cat("this run has ended before, after step ", trainer.steps(),
                         "; nothing was written. Train longer by --epochs or --max_steps."));
  const auto print = [&](const std::string& key, const JsonValue* value) {
    if (value && value->kind() != JsonValue::Kind::kNull)
      console.line(
          cat(key, ": ", value->kind() == JsonValue::Kind::kString ? value->text() : value->str()));
  };
  for (const char* const key : {"steps", "epochs", "seconds"}) print(key, results.find(key));
  if (const JsonValue* const metrics = results.find("metrics"))
    for (const auto& [name, value] : metrics->members()) print(name, &value);
  for (const char* const key : {"params_hash", "state_hash"}) print(key, results.find(key));
}

}  // namespace belfry
