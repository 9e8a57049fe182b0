#include <algorithm>
#include <utility>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/text.h"
#include "belfry/trainers/device_flag.h"
#include "belfry/trainers/flags_impl.h"
#include "belfry/trainers/measure_machine.h"
#include "belfry/trainers/trainer.h"
#include "belfry/trainers/trainer_kinds.h"

namespace belfry {
namespace {

// "--trainer=simple (chosen for --devices=cpu:1)".
std::string chosen_trainer(const TrainFlags& flags, const RawFlags& raw) {
  return cat("--trainer=", flags.trainer,
             raw.trainer.empty() ? cat(" (chosen for --devices=", raw.devices.list, ")") : "");
}

bool on_gpus(const TrainFlags& flags) {
  return std::ranges::any_of(flags.devices, &DeviceSpec::is_gpu);
}

const TrainerKind& choose_trainer(TrainFlags& flags, const RawFlags& raw) {
  const auto towers = std::ssize(flags.devices);
  flags.trainer = raw.trainer.empty() ? (towers == 1 ? "simple" : "replicated") : raw.trainer;
  const TrainerKind& kind =
      as_flag("--trainer", [&]() -> const TrainerKind& { return find_trainer(flags.trainer); });
  require<FlagError>(!kind.one_device || towers == 1, chosen_trainer(flags, raw),
                     " takes one device, but --devices=", raw.devices.list, " has ", towers);
  return kind;
}

void choose_strategy(TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  flags.allreduce = raw.allreduce.empty() ? kind.default_strategy : raw.allreduce;
  flags.allreduce_given = !raw.allreduce.empty();
  if (flags.allreduce.empty()) return;
  const bool chooses =
      as_flag("--allreduce", [&] { return parse_all_reduce_spec(flags.allreduce).is_auto(); });
  const std::string_view why_not =
      kind.accepts ? " does not take --allreduce="
      : kind.async ? " combines no gradients: those of each tower update the variables by "
                     "themselves, so it takes no --allreduce="
                   : " has no gradients to combine, so it takes no --allreduce=";
  require<FlagError>(kind.accepts && kind.accepts(flags.allreduce), chosen_trainer(flags, raw),
                     why_not, flags.allreduce);
  const auto towers = static_cast<int>(flags.devices.size());
  const std::string refusal = chooses ? "" : make_strategy(flags.allreduce)->refusal(flags.devices);
  require<FlagError>(refusal.empty(), "--allreduce=", flags.allreduce, ": ", refusal,
                     " (--devices=", raw.devices.list, " has ", towers, ")");
}

void check_shapes_of_batches(const TrainFlags& flags, const RawFlags& raw,
                             const TrainerKind& kind) {
  const bool unequal = makes_unequal(flags.uneven);
  require<FlagError>(kind.weighs || (!unequal && flags.tower_weights.empty()),
                     unequal ? cat("--uneven=", name_of(flags.uneven))
                             : cat("--tower_weights=", raw.tower_weights),
                     " gives devices batches of different sizes, which ",
                     chosen_trainer(flags, raw), " does not take");
  require<FlagError>(!kind.one_device || flags.tower_weights.empty(),
                     "--tower_weights=", raw.tower_weights, " has no use for ",
                     chosen_trainer(flags, raw), ", which takes one device");
}

void check_replicas(const TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  // On GPUs updates are fused with each other, too.
  const std::pair<const char*, bool> passes[] = {
      {"--fuse_updates", !raw.fuse_updates.empty() && flags.fuse_updates && !on_gpus(flags)},
      {"--share_replicas", !raw.share_replicas.empty() && flags.share_replicas}};
  for (const auto& [flag, asked] : passes)
    require<FlagError>(!asked || kind.replicates, flag, "=1 has no use for ",
                       chosen_trainer(flags, raw), ", which has no replicas");
}

// Whether gradients are, or may be, combined by NCCL, which needs GPUs.
bool may_use_nccl(const TrainFlags& flags) {
  if (!on_gpus(flags)) return false;
  if (!flags.allreduce_given || flags.allreduce == "auto") return true;
  return std::ranges::any_of(parse_all_reduce_spec(flags.allreduce).ranges,
                             [](const AllReduceRange& range) { return range.strategy == "nccl"; });
}

void check_packing(const TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  const std::pair<const char*, int> packings[] = {
      {"--gradient_repacking", flags.gradient_repacking},
      {"--small_tensors_kb", flags.small_tensors_kb}};
  for (const auto& [flag, value] : packings)
    require<FlagError>(value == 0 || kind.packs, flag, "=", value,
                       " lays gradients end to end, which ", chosen_trainer(flags, raw),
                       " does not do");
  require<FlagError>(flags.gradient_repacking == 0 || flags.small_tensors_kb == 0,
                     "--small_tensors_kb=", flags.small_tensors_kb,
                     " has no use beside --gradient_repacking=", flags.gradient_repacking,
                     ", which packs all gradients; leave one of them out");
}

void choose_buckets(TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  require<FlagError>(flags.bucket_mb == 0 || kind.buckets, "--bucket_mb=", raw.bucket_mb,
                     " has no use for ", chosen_trainer(flags, raw), ", which makes no buckets");
  require<FlagError>(flags.bucket_mb == 0 || flags.gradient_repacking == 0,
                     "--bucket_mb=", raw.bucket_mb,
                     " and --gradient_repacking=", flags.gradient_repacking,
                     " cut the gradients in two different ways; leave one of them out");
  flags.bucket_mb_given = !raw.bucket_mb.empty();
  if (raw.bucket_mb.empty() && kind.buckets && flags.gradient_repacking == 0)
    flags.bucket_mb = kDefaultBucketMb;
}

void choose_async(TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  require<FlagError>(raw.async.empty() || kind.async, "--async=", raw.async,
                     " needs --trainer=async, not ", chosen_trainer(flags, raw));
  flags.async = kind.async && raw.async.empty() ? "ordered" : raw.async;
  require<FlagError>(flags.async.empty() || flags.async == "ordered" || flags.async == "free",
                     "--async=", raw.async, " is neither ordered nor free");
  require<FlagError>(flags.async != "free" || !on_gpus(flags),
                     "--async=free with --devices=", raw.devices.list,
                     ": towers that do not wait for each other run on CPUs alone; ",
                     "use cpu:N, or --async=ordered");
}

void refuse_precision(const TrainFlags& flags) {
  const std::string_view name = name_of(flags.precision);
  const std::string refusal = precision_refusal(flags.precision, flags.devices);
  require<FlagError>(refusal.empty(), "--precision=", name, ": ", refusal);
  require<FlagError>(flags.precision != Precision::kF16 || flags.async != "free",
                     "--precision=f16 scales the loss, and with --async=free towers agree on no ",
                     "scale; use --precision=bf16, which needs none, or --async=ordered");
}

// What inspects or compares keeps nothing of a training run, and goes on from none.
void refuse_unused_files(const TrainFlags& flags) {
  require<FlagError>(!flags.overwrite || !flags.save_checkpoint.empty(),
                     "--overwrite is for what --save_checkpoint replaces; name that, too");
  const std::string_view why = flags.dry_run                 ? "--dry_run"
                               : !flags.explain.empty()      ? "--explain"
                               : flags.check_equivalence > 0 ? "--check_equivalence"
                                                             : "";
  if (why.empty()) return;
  const std::pair<const char*, const std::string&> files[] = {
      {"--trace_file", flags.trace_file},
      {"--save_checkpoint", flags.save_checkpoint},
      {"--restore_checkpoint", flags.restore_checkpoint}};
  for (const auto& [flag, value] : files)
    require<FlagError>(value.empty(), flag, "=", value, " has no use beside ", why,
                       ", which keeps nothing of a training run; leave one of them out");
}

// --check_equivalence chooses the modes and the number of steps itself.
void refuse_beside_equivalence(const TrainFlags& flags, const RawFlags& raw) {
  if (flags.check_equivalence == 0) return;
  const std::pair<const char*, std::string> others[] = {
      {"--dry_run", flags.dry_run ? "true" : ""},
      {"--explain", flags.explain},
      {"--log_device_placement", flags.log_device_placement ? "true" : ""},
      {"--trainer", raw.trainer},
      {"--allreduce", raw.allreduce},
      {"--gradient_repacking", raw.repacking},
      {"--small_tensors_kb", raw.small_tensors_kb},
      {"--bucket_mb", raw.bucket_mb},
      {"--fuse_updates", raw.fuse_updates},
      {"--share_replicas", raw.share_replicas},
      {"--async", raw.async},
      {"--epochs", raw.epochs},
      {"--max_steps", raw.max_steps}};
  for (const auto& [flag, value] : others)
    require<FlagError>(value.empty(), flag, "=", value,
                       " has no use beside --check_equivalence=", flags.check_equivalence,
                       ", which runs so many steps in every mode");
}

void check_shares(const TrainFlags& flags, const RawFlags& raw) {
  const auto towers = std::ssize(flags.devices);
  const std::int64_t batch = flags.batch_size * static_cast<std::int64_t>(towers);
  const std::vector<std::int64_t> shares = divide_samples(batch, towers, flags.tower_weights);
  for (std::size_t t = 0; t < shares.size(); ++t)
    require<FlagError>(shares[t] > 0, "--tower_weights=", raw.tower_weights, " leaves ",
                       flags.devices[t].short_str(), " none of the ", batch,
                       " examples that --batch_size=", flags.batch_size, " on ", towers,
                       " devices makes; use a larger weight or batch");
}

}  // namespace

void check_flags(TrainFlags& flags, const RawFlags& raw, bool compares_auto) {
  refuse_beside_equivalence(flags, raw);
  refuse_unused_files(flags);
  const TrainerKind& kind = choose_trainer(flags, raw);
  choose_strategy(flags, raw, kind);
  check_shapes_of_batches(flags, raw, kind);
  check_replicas(flags, raw, kind);
  check_packing(flags, raw, kind);
  choose_buckets(flags, raw, kind);
  choose_async(flags, raw, kind);
  refuse_precision(flags);
  // auto is one of the modes of --check_equivalence. A run that goes on from one that chose may
  // choose, too: train() knows when it has looked.
  const bool may_choose = !flags.restore_checkpoint.empty() && !flags.allreduce_given;
  check_auto_flags(
      flags.automatic,
      flags.allreduce == "auto" || flags.check_equivalence > 0 || compares_auto || may_choose,
      "--allreduce=auto");
  require<FlagError>(raw.nccl_timeout_s.empty() || may_use_nccl(flags),
                     "--nccl_timeout_s=", raw.nccl_timeout_s,
                     " is for nccl, which is not used by --allreduce=", flags.allreduce, " on ",
                     short_names(flags.devices));
  const std::string& links = flags.automatic.links;
  require<FlagError>(links.empty() || flags.logical_gpus == 1, "--links=", links,
                     " describes devices with a memory each, not --logical_gpus=",
                     flags.logical_gpus, " that share one; leave one of them out");
  if (flags.allreduce == "auto" && links.empty())
    as_flag("--allreduce=auto", [&] {
      require_measurable({flags.devices, flags.threads, flags.logical_gpus});
    });
  check_shares(flags, raw);
}

}  // namespace belfry
