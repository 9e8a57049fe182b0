#include "belfry/trainers/program/trainer_options.h"

#include <memory>
#include <optional>

#include "belfry/allreduce/machine.h"

namespace belfry {
namespace {

AutoOptions auto_options(const TrainFlags& flags) {
  const AutoFlags& given = flags.automatic;
  AutoOptions options{.any = given.auto_any};
  if (flags.bucket_mb_given) options.buckets = {flags.bucket_mb};
  // Found once, for all modes that choose.
  options.machine = [found = std::make_shared<std::optional<Machine>>(), given,
                     here = MeasuredDevices{flags.devices, flags.threads, flags.logical_gpus}] {
    if (!*found) *found = machine_for(given, here);
    return **found;
  };
  if (!given.links.empty()) options.machine();  // wrong files are refused first
  return options;
}

}  // namespace

TrainerOptions trainer_options(const TrainFlags& flags, const Model& model,
                               const Optimizer& optimizer) {
  TrainerOptions options{.model = model,
                         .optimizer = optimizer,
                         .devices = flags.devices,
                         .logical_gpus = flags.logical_gpus,
                         .parameters_on_cpu = flags.parameters_on_cpu,
                         .allreduce = flags.allreduce,
                         .choice = auto_options(flags),
                         .gradient_repacking = flags.gradient_repacking,
                         .fuse_updates = flags.fuse_updates,
                         .share_replicas = flags.share_replicas,
                         .small_tensors_kb = flags.small_tensors_kb,
                         .bucket_mb = flags.bucket_mb,
                         .nccl_timeout_s = flags.nccl_timeout_s,
                         .async = flags.async.empty() ? "ordered" : flags.async,
                         .batch_size = flags.batch_size,
                         .uneven = flags.uneven,
                         .tower_weights = flags.tower_weights,
                         .epochs = flags.epochs,
                         .max_steps = flags.max_steps,
                         .seed = flags.seed,
                         .precision = flags.precision,
                         .threads = flags.threads,
                         .deterministic = flags.deterministic,
                         .log_device_placement = flags.log_device_placement || flags.dry_run,
                         .dry_run = flags.plans()};
  if (flags.learning_rate) options.optimizer = optimizer.with_rate(*flags.learning_rate);
  return options;
}

}  // namespace belfry
