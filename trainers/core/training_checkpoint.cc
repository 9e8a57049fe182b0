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

// Variables are f32 in all, so this is no error. A scale that the checkpoint lacks starts anew.
void warn_of_precision(const CheckpointInfo& info, Precision now) {
  const Json* const kept = info.extra.find("precision");
  if (!kept) return;
  const std::string before =
      read_manifest(info, "the precision of training", [&] { return kept->text(); });
  if (before != name_of(now))
    log_warning("the precision was ", shown(before), " and is now ", name_of(now));
}

// Results go on, but not to the bits of a run that never stopped.
void warn_of_shards(const CheckpointInfo& info, int now) {
  const Json* const kept = info.extra.find("shards");
  if (!kept) return;
  const std::int64_t before =
      read_manifest(info, "the number of shards", [&] { return kept->integer(); });
  if (before != now)
    log_warning("the global batch had ", before, before == 1 ? " shard" : " shards",
                " and now has ", now, ": training goes on with other bits");
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

constexpr char kNotFiniteSince[] = "loss_not_finite_since";  // a step
constexpr char kTestLoss[] = "test_loss_not_finite_after";   // a step

// Weights that are finite may have no use either: a loss that is not finite says so. They replace
// none but their like.
void require_no_divergence(const Trainer& trainer, const std::string& path) {
  const std::optional<std::int64_t> since = trainer.not_finite_since();
  if (!since) return;
  const std::optional<CheckpointInfo> old = find_training(path);
  require(!old || !has_good_losses(*old), "the loss is not finite since step ", *since,
          ", so nothing was saved, and the checkpoint ", old ? old->path : path,
          " was kept; save to another path to keep the present values, too");
}

void warn_of_divergence(const CheckpointInfo& info) {
  const std::pair<const char*, const char*> losses[] = {
      {kNotFiniteSince, "a loss that was not finite since step "},
      {kTestLoss, "a test loss that was not finite after step "}};
  for (const auto& [key, what] : losses)
    if (const Json* const step = info.extra.find(key))
      log_warning("the run that saved the checkpoint ", info.path, " had ", what,
                  read_manifest(info, "the divergence", [&] { return step->integer(); }));
}

}  // namespace

SaveOptions training_save_options(bool overwrite) {
  return {.overwrite = overwrite, .optional = loss_scale_names()};
}

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

bool has_good_losses(const CheckpointInfo& info) {
  return !info.extra.find(kNotFiniteSince) && !info.extra.find(kTestLoss);
}

std::string save_training(Trainer& trainer, const std::string& path,
                          const TrainingSaveOptions& options) {
  require_no_divergence(trainer, path);
  const TrainingPosition position = trainer.position();
  Json extra = Json::object();
  extra.set("steps", position.steps)
      .set("epoch", position.epoch)
      .set("samples", position.samples)
      .set("seed", position.seed)
      .set("shards", trainer.options().shards)
      .set("precision", std::string(name_of(trainer.options().precision)));
  if (const std::optional<std::int64_t> since = trainer.not_finite_since())
    extra.set(kNotFiniteSince, *since);
  if (options.test_diverged) extra.set(kTestLoss, position.steps);
  if (const std::optional<KeptChoice> choice = trainer.kept_choice())
    extra.set("auto", to_json(*choice));
  SaveOptions save = training_save_options(options.overwrite);
  save.keep_old = options.keep_old;
  return save_checkpoint(trainer.session(), path, extra, local_file_system(), save);
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
  const CheckpointInfo before = inspect_checkpoint(path);
  const TrainingPosition position = position_in(before);
  Trainer::check_position(position);  // before anything is set: a failed restore changes nothing
  const CheckpointInfo info = restore_whole(trainer.session(), path);
  warn_of_precision(before, trainer.options().precision);
  warn_of_shards(before, trainer.options().shards);
  warn_of_divergence(before);
  trainer.resume(position);
  const std::int64_t left = trainer.total_steps() - trainer.steps();
  return cat("checkpoint: ", info.path, ", after step ", trainer.steps(), "; ",
             left > 0 ? cat(left, " steps are left") : "nothing is left to train");
}

}  // namespace belfry
