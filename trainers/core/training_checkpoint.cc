#include "belfry/trainers/core/training_checkpoint.h"

#include <cmath>
#include <limits>
#include <typeinfo>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/fingerprint_difference.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns what `read` makes of the manifest. Throws IoError naming it and `what` is wrong in it.
template <class F>
auto read_manifest(const CheckpointInfo& info, const char* what, const F& read) {
  try {
    return read();
  } catch (const InvalidArgument& error) {
    throw IoError(cat(info.path, "/manifest.json: ", what, ": ", error.what()));
  }
}

// Variables are f32 in all, so this is no error. A scale that the checkpoint lacks starts anew.
void warn_of_precision(const CheckpointInfo& info, Precision now) {
  const JsonValue* const kept = info.extra.find("precision");
  if (!kept) return;
  const std::string before =
      read_manifest(info, "the precision of training", [&] { return kept->text(); });
  if (before != name_of(now))
    log_warning("the precision was ", shown(before), " and is now ", name_of(now));
}

// Why a run of the same fingerprint does not end with the bits of the saved one; "" if it does.
std::string other_bits_than(const CheckpointInfo& info, const Trainer& trainer) {
  const JsonValue* const total = info.extra.find("total_steps");
  const std::int64_t before =
      total ? read_manifest(info, "total_steps", [&] { return total->integer(); })
            : trainer.progress().total_steps();
  if (trainer.progress().rates_differ(before))
    return cat("the learning rate follows the length of the run, which was ", before,
               " steps and is now ", trainer.progress().total_steps());
  return why_other_bits(info.extra, bit_sources(trainer.built()));
}

// What `compare` says of the run that saved it and this one; "" for no difference.
std::string difference_of_runs(const CheckpointInfo& info, const Trainer& trainer,
                               std::string (*compare)(const JsonValue&, const JsonValue&)) {
  const JsonValue* const before = info.extra.find("identity");
  if (!before) return "";
  return read_manifest(info, "what the run was",
                       [&] { return compare(*before, trainer.record().fingerprint()); });
}

std::string text_of_other_run(const CheckpointInfo& info, const std::string& difference) {
  return cat("the run that saved ", info.path, " was another one: ", difference,
             "; give what it had, or start a new run, which may take its weights (",
             the_option("load"), ")");
}

// By the names of callbacks.
JsonValue states_of(const Trainer& trainer) {
  JsonValue states = JsonValue::object();
  for (const std::shared_ptr<Callback>& callback : trainer.built().options().callbacks)
    if (!callback->name().empty())
      naming_part(cat("the callback ", class_name(typeid(*callback)), "::state"),
                  [&] { states.set(callback->name(), callback->state()); });
  return states;
}

constexpr char kEpochIsOpen[] = "epoch_is_open";

// JSON has no numbers that are not finite: they become null, and NaN when they are read.
JsonValue metrics_of(const Trainer& trainer) {
  JsonValue metrics = JsonValue::object();
  for (const auto* const values :
       {&trainer.record().step_metrics(), &trainer.record().set_metrics()})
    for (const NamedValue& value : *values)
      metrics.set(value.name, std::isfinite(value.value) ? JsonValue(value.value) : JsonValue());
  return metrics;
}

std::vector<NamedValue> metrics_in(const CheckpointInfo& info) {
  const JsonValue* const metrics = info.extra.find("metrics");
  if (!metrics) return {};
  return read_manifest(info, "the metrics", [&] {
    std::vector<NamedValue> values;
    for (const auto& [name, value] : metrics->members())
      values.push_back({name, value.kind() == JsonValue::Kind::kNull ? kNaN : value.number()});
    return values;
  });
}

void restore_callbacks(const CheckpointInfo& info, const Trainer& trainer) {
  const JsonValue* const states = info.extra.find("callbacks");
  if (!states) return;
  read_manifest(info, "the state of callbacks", [&] {
    for (const std::shared_ptr<Callback>& callback : trainer.built().options().callbacks)
      if (const JsonValue* const state =
              callback->name().empty() ? nullptr : states->find(callback->name()))
        callback->restore(*state);
    return true;
  });
}

// Restores every tensor, strictly: with fewer variables, or more, the resumed run would be another
// run.
CheckpointInfo restore_whole(Trainer& trainer, const CheckpointInfo& before,
                             const std::string& path) {
  try {
    return restore_checkpoint(trainer.session(), path, local_file_system(),
                              {.optional = loss_scale_names(), .strict = true});
  } catch (const InvalidArgument& error) {
    const std::string difference =
        difference_of_runs(before, trainer, difference_of_extra_variables);
    require<OtherRun>(difference.empty(), text_of_other_run(before, difference));
    throw InvalidArgument(cat(error.what(),
                              "; training goes on with the model and the optimizer of ",
                              "the run that saved the checkpoint alone"));
  }
}

// The batches of an evaluation count no samples of an epoch. If some were taken, a step stands for
// them.
std::string restore_for_evaluation(Trainer& trainer, const TrainingPosition& position,
                                   const std::string& path) {
  const std::int64_t step = trainer.built().batches().samples_per_step();
  restore_weights(trainer.session(), path);
  trainer.progress().resume({.steps = position.steps,
                             .epoch = position.epoch,
                             .samples = position.samples > 0 ? step : 0,
                             .seed = trainer.built().options().seed});
  return cat("checkpoint: ", path, ", after step ", trainer.steps());
}

}  // namespace

TrainingPosition position_in(const CheckpointInfo& info) {
  if (!info.extra.find("steps")) return {};
  return read_manifest(info, "the position of training", [&]() -> TrainingPosition {
    return {.steps = info.extra.at("steps").integer(),
            .epoch = info.extra.at("epoch").integer(),
            .samples = info.extra.at("samples").integer(),
            .seed = info.extra.at("seed").unsigned_integer()};
  });
}

std::optional<CheckpointInfo> find_training(const std::string& path) try {
  return inspect_checkpoint(path);
} catch (const Error&) {
  return {};
}

std::int64_t saved_integer(const CheckpointInfo& info, std::string_view name) {
  const JsonValue* const value = info.extra.find(name);
  return value ? value->integer() : 0;
}

namespace {

bool keeps_averages(const BuiltTraining& built) {
  const auto has_some = [](const Optimizer& optimizer) { return optimizer.averages().has_value(); };
  return std::ranges::any_of(built.options().optimizers(), has_some);
}

}  // namespace

JsonValue training_state(const Trainer& trainer) {
  const BuiltTraining& built = trainer.built();
  const TrainingPosition position = trainer.progress().position();
  JsonValue extra = JsonValue::object();
  extra.set("steps", position.steps)
      .set("epoch", position.epoch)
      .set("samples", position.samples)
      .set("total_steps", trainer.progress().total_steps())
      .set("seed", position.seed)
      .set("global_batch", built.batches().global_batch())
      .set("precision", std::string(name_of(built.options().precision)))
      .set(kValidatedWeights,
           name_of(keeps_averages(built) ? WeightChoice::kAverage : WeightChoice::kRaw))
      .set("identity", trainer.record().fingerprint())
      .set("metrics", metrics_of(trainer))
      .set("callbacks", states_of(trainer));
  const JsonValue sources = bit_sources(built);
  for (const auto& [key, value] : sources.members()) extra.set(key, value);
  if (const std::int64_t skipped = trainer.record().watch().skipped_steps(); skipped > 0)
    extra.set("skipped_steps", skipped);
  if (trainer.loop().epoch_is_open()) extra.set(kEpochIsOpen, true);
  return extra;
}

CheckpointSnapshot snapshot_training(Trainer& trainer, const JsonValue& more) {
  if (const std::string file = trainer.record().changed_data(); !file.empty())
    log_warning(file,
                " has changed since this run began to read it, so what the run reads from it now ",
                "may be other data; a run that resumes from its checkpoints needs the old file");
  require_equal_replicas(trainer.session(), trainer.graph(), trainer.steps());
  JsonValue extra = training_state(trainer);
  for (const auto& [key, value] : more.members()) extra.set(key, value);
  return CheckpointSnapshot(trainer.session(), extra);
}

void save_training(Trainer& trainer, const std::string& path) {
  snapshot_training(trainer, JsonValue::object()).save(path);
}

std::string restore_training(Trainer& trainer, const std::string& path, OtherRuns others) {
  const CheckpointInfo before = inspect_checkpoint(path);
  const TrainingPosition position = position_in(before);
  TrainingProgress::check_position(
      position);  // before anything is set: a failed restore changes nothing
  if (trainer.built().options().evaluates_only)
    return restore_for_evaluation(trainer, position, path);
  const std::string difference = difference_of_runs(before, trainer, first_difference);
  require<OtherRun>(others != OtherRuns::kRefuse || difference.empty(),
                    text_of_other_run(before, difference));
  const CheckpointInfo info = restore_whole(trainer, before, path);
  warn_of_precision(before, trainer.built().options().precision);
  restore_callbacks(before, trainer);
  trainer.progress().resume(position);
  trainer.record().watch().resume(saved_integer(before, "skipped_steps"));
  trainer.built().resume_bits(earlier_bits(before.extra, bit_sources(trainer.built())));
  trainer.record().resume_metrics(metrics_in(before));
  if (before.extra.find(kEpochIsOpen) && position.samples == 0 && trainer.progress().epochs() > 0)
    trainer.loop().resume_epoch();
  const std::string why = difference.empty() ? other_bits_than(before, trainer) : difference;
  if (!why.empty()) log_warning("resume: not the same bits because ", why);
  const std::int64_t left = trainer.progress().total_steps() - trainer.steps();
  return cat("checkpoint: ", info.path, ", after step ", trainer.steps(), "; ",
             left > 0 ? cat(left, " steps are left") : "nothing is left to train");
}

}  // namespace belfry
