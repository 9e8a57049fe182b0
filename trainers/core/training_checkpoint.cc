#include "belfry/trainers/core/training_checkpoint.h"

#include <limits>

#include "belfry/framework/base/log.h"
#include "belfry/trainers/core/loss_scaling.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {

namespace {

Json to_json(const KeptChoice& choice) {
  Json devices = Json::array();
  for (const DeviceSpec& device : choice.devices) devices.push(device.str());
  return Json::object()
      .set("allreduce", choice.allreduce)
      .set("bucket_mb", choice.bucket_mb)
      .set("gradient_repacking", choice.gradient_repacking)
      .set("small_tensors_kb", choice.small_tensors_kb)
      .set("devices", std::move(devices));
}

// What `read` makes of the manifest; throws IoError naming it and `what` is wrong in it.
template <class F>
auto read_manifest(const CheckpointInfo& info, const char* what, const F& read) {
  try {
    return read();
  } catch (const InvalidArgument& error) {
    throw IoError(cat(info.path, "/manifest.json: ", what, ": ", error.what()));
  }
}

// Throws IoError naming the manifest unless it holds what save_training() writes.
TrainingPosition position_in(const CheckpointInfo& info) {
  if (!info.extra.find("steps")) return {};
  return read_manifest(info, "the position of training", [&]() -> TrainingPosition {
    return {.steps = info.extra.at("steps").integer(),
            .epoch = info.extra.at("epoch").integer(),
            .samples = info.extra.at("samples").integer(),
            .seed = info.extra.at("seed").unsigned_integer()};
  });
}

// Variables are f32 in all, so this is no error. A scale that the checkpoint lacks starts anew.
void warn_of_precision(const CheckpointInfo& info, Precision now) {
  const Json* const kept = info.extra.find("precision");
  if (!kept) return;
  const std::string before =
      read_manifest(info, "the precision of training", [&] { return kept->text(); });
  if (before != name_of(now))
    log_warning("the precision was ", shown(before), " and is now ", name_of(now));
}

int whole_number(const Json& json) {
  const std::int64_t value = json.integer();
  require(value >= 0 && value <= std::numeric_limits<int>::max(), value, " is out of range");
  return static_cast<int>(value);
}

// With less than all that it had, or more, a run would go on as another one.
CheckpointInfo restore_whole(Session& session, const std::string& path) {
  try {
    return restore_checkpoint(session, path, local_file_system(),
                              {.optional = loss_scale_names(), .whole = true});
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat(error.what(),
                              "; training goes on with the model and the optimizer of ",
                              "the run that saved the checkpoint alone"));
  }
}

SaveOptions save_options(bool overwrite) {
  return {.overwrite = overwrite, .optional = loss_scale_names()};
}

constexpr char kNotFiniteSince[] = "loss_not_finite_since";  // a step

// Weights that are finite may have no use either: a loss that is not finite says so. They replace
// none but their like.
void require_no_divergence(const Trainer& trainer, const std::string& path) {
  const std::optional<std::int64_t> since = trainer.not_finite_since();
  if (!since) return;
  std::optional<CheckpointInfo> old;
  try {
    old = inspect_checkpoint(path);
  } catch (const Error&) {  // there is none, or save_checkpoint() says what is there
    return;
  }
  require(old->extra.find(kNotFiniteSince) != nullptr, "the loss is not finite since step ", *since,
          ", so nothing was saved, and the checkpoint ", old->path,
          " was kept; save to another path to keep the present values, too");
}

void warn_of_divergence(const CheckpointInfo& info) {
  const Json* const since = info.extra.find(kNotFiniteSince);
  if (!since) return;
  log_warning("the run that saved the checkpoint ", info.path,
              " had a loss that was not finite since step ",
              read_manifest(info, "the divergence", [&] { return since->integer(); }));
}

}  // namespace

void save_training(Trainer& trainer, const std::string& path, bool overwrite) {
  require_no_divergence(trainer, path);
  const TrainingPosition position = trainer.position();
  Json extra = Json::object();
  extra.set("steps", position.steps)
      .set("epoch", position.epoch)
      .set("samples", position.samples)
      .set("seed", position.seed)
      .set("precision", std::string(name_of(trainer.options().precision)));
  if (const std::optional<std::int64_t> since = trainer.not_finite_since())
    extra.set(kNotFiniteSince, *since);
  if (const std::optional<KeptChoice> choice = trainer.kept_choice())
    extra.set("auto", to_json(*choice));
  save_checkpoint(trainer.session(), path, extra, local_file_system(), save_options(overwrite));
}

std::optional<KeptChoice> choice_in(const CheckpointInfo& info) {
  const Json* const json = info.extra.find("auto");
  if (!json) return {};
  return read_manifest(info, "the choice of auto", [&]() -> KeptChoice {
    KeptChoice choice{.allreduce = json->at("allreduce").text(),
                      .bucket_mb = json->at("bucket_mb").number(),
                      .gradient_repacking = whole_number(json->at("gradient_repacking")),
                      .small_tensors_kb = whole_number(json->at("small_tensors_kb")),
                      .from = info.path};
    require(choice.bucket_mb >= 0 && choice.bucket_mb <= kMostBucketMb, "buckets of ",
            choice.bucket_mb, " MiB");
    for (const Json& device : json->at("devices").items())
      choice.devices.emplace_back(device.text());
    return choice;
  });
}

std::string restore_training(Trainer& trainer, const std::string& path) {
  // First, as it may refuse the position; a failed restore changes nothing.
  const CheckpointInfo before = inspect_checkpoint(path);
  warn_of_precision(before, trainer.options().precision);
  warn_of_divergence(before);
  trainer.resume(position_in(before));
  const CheckpointInfo info = restore_whole(trainer.session(), path);
  const std::int64_t left = trainer.total_steps() - trainer.steps();
  return cat("checkpoint: ", info.path, ", after step ", trainer.steps(), "; ",
             left > 0 ? cat(left, " steps are left") : "nothing is left to train");
}

SaveCheckpoint::SaveCheckpoint(std::string path, bool overwrite)
    : path_(std::move(path)), overwrite_(overwrite) {
  check_checkpoint_path(path_);
}

void SaveCheckpoint::setup(Trainer& trainer) {
  check_checkpoint_path(trainer.graph(), path_, save_options(overwrite_));
}

void SaveCheckpoint::after_epoch(Trainer& trainer, const StepInfo& info) { save(trainer, info); }

void SaveCheckpoint::after_training(Trainer& trainer, const StepInfo& info) {
  if (info.step != saved_at_) save(trainer, info);
}

void SaveCheckpoint::save(Trainer& trainer, const StepInfo& info) {
  save_training(trainer, path_, overwrite_);
  saved_at_ = info.step;
  saved_ = cat("the checkpoint ", path_, " holds step ", info.step, ", ", trainer.epochs(),
               trainer.epochs() == 1 ? " whole epoch" : " whole epochs");
}

}  // namespace belfry
