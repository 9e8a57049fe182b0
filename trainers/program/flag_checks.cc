#include <algorithm>
#include <utility>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/measure_machine.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/program/flags_impl.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// "--trainer=simple (chosen for --devices=cpu:1)".
std::string chosen_trainer(const TrainFlags& flags, const RawFlags& raw) {
  return raw.trainer.given()
             ? raw.trainer.str()
             : cat("--trainer=", flags.trainer, " (chosen for ", raw.devices.list, ")");
}

bool on_gpus(const TrainFlags& flags) {
  return std::ranges::any_of(flags.devices, &DeviceSpec::is_gpu);
}

// One device has nothing to combine, so what says how is left out. No error, as it would end every
// sweep over numbers of devices.
void leave_out_combining(TrainFlags& flags, RawFlags& raw) {
  if (flags.devices.size() != 1 || raw.trainer.given() || flags.check_equivalence > 0) return;
  if (raw.allreduce.given())
    as_flag(raw.allreduce.str(),
            [&] { parse_all_reduce_spec(underscores_in_names(raw.allreduce.text())); });
  const std::pair<FlagValue&, bool> combining[] = {
      {raw.allreduce, true},
      {raw.repacking, flags.gradient_repacking > 0},
      {raw.small_tensors_kb, flags.small_tensors_kb > 0},
      {raw.bucket_mb, flags.bucket_mb > 0},
      {raw.fuse_updates, flags.fuse_updates && !on_gpus(flags)},
      {raw.share_replicas, flags.share_replicas},
      {raw.nccl_timeout_s, true}};
  std::vector<std::string> unused;
  for (const auto& [flag, asks] : combining) {
    if (flag.given() && asks) unused.push_back(flag.str());
    if (asks) flag = {};
  }
  flags.gradient_repacking = flags.small_tensors_kb = 0;
  flags.bucket_mb = 0;
  if (!unused.empty())
    log_warning(join(unused), unused.size() == 1 ? " has" : " have", " no use for ",
                raw.devices.list,
                ": one device has nothing to combine, so --trainer=simple trains without");
}

const TrainerKind& choose_trainer(TrainFlags& flags, const RawFlags& raw) {
  const auto towers = std::ssize(flags.devices);
  flags.trainer = raw.trainer.given() ? underscores_in_names(raw.trainer.text())
                  : towers == 1       ? "simple"
                                      : "replicated";
  const TrainerKind& kind = as_flag(
      raw.trainer.str(), [&]() -> const TrainerKind& { return find_trainer(flags.trainer); });
  require<FlagError>(!kind.takes_one_device || towers == 1, chosen_trainer(flags, raw),
                     " takes one device, but ", raw.devices.list, " has ", towers);
  require<FlagError>(!raw.parameter_device.given() || kind.spreads_variables(),
                     raw.parameter_device, " has no use for ", chosen_trainer(flags, raw),
                     ", which has variables on every device; say --trainer=parameter_server");
  return kind;
}

// What to do about a strategy that a trainer does not take.
std::string without_strategy(const std::string& spec) {
  for (const std::string& name : trainer_names())
    if (const TrainerKind& other = find_trainer(name); other.accepts && other.accepts(spec))
      return cat("; leave it out, or write --trainer=", name);
  return "; leave it out";
}

void choose_strategy(TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  flags.allreduce_given = raw.allreduce.given();
  flags.allreduce =
      flags.allreduce_given ? underscores_in_names(raw.allreduce.text()) : kind.default_strategy;
  if (flags.allreduce.empty()) return;
  const bool chooses = as_flag(raw.allreduce.str(),
                               [&] { return parse_all_reduce_spec(flags.allreduce).is_auto(); });
  const std::string_view why_not =
      kind.accepts         ? " does not take "
      : kind.takes_async() ? " combines no gradients: those of each tower update the variables by "
                             "themselves, so it takes no "
                           : " has no gradients to combine, so it takes no ";
  require<FlagError>(kind.accepts && kind.accepts(flags.allreduce), chosen_trainer(flags, raw),
                     why_not, raw.allreduce, without_strategy(flags.allreduce));
  const std::string refusal = chooses ? "" : make_strategy(flags.allreduce)->refusal(flags.devices);
  if (refusal.empty()) return;
  require<FlagError>(flags.devices.size() == 1, raw.allreduce, ": ", refusal, " (",
                     raw.devices.list, " has ", flags.devices.size(), ")");
  log_warning(raw.allreduce, " has no use for ", raw.devices.list,
              ", as one device has nothing to combine; --allreduce=", kind.default_strategy,
              " takes its place");
  flags.allreduce = kind.default_strategy;
}

void check_shapes_of_batches(const TrainFlags& flags, const RawFlags& raw,
                             const TrainerKind& kind) {
  const bool unequal = makes_unequal(flags.uneven);
  require<FlagError>(kind.takes_unequal_batches || (!unequal && flags.tower_weights.empty()),
                     unequal ? raw.uneven : raw.tower_weights,
                     " gives devices batches of different sizes, which ",
                     chosen_trainer(flags, raw), " does not take");
  require<FlagError>(!kind.takes_one_device || flags.tower_weights.empty(), raw.tower_weights,
                     " has no use for ", chosen_trainer(flags, raw), ", which takes one device");
}

void check_replicas(const TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  // On GPUs updates are fused with each other, too.
  const std::pair<const FlagValue&, bool> passes[] = {
      {raw.fuse_updates, flags.fuse_updates && !on_gpus(flags)},
      {raw.share_replicas, flags.share_replicas}};
  for (const auto& [flag, on] : passes)
    require<FlagError>(!flag.given() || !on || kind.replicates_variables(), flag,
                       " has no use for ", chosen_trainer(flags, raw), ", which has no replicas");
}

// Whether gradients are, or may be, combined by NCCL, which needs GPUs.
bool may_use_nccl(const TrainFlags& flags) {
  if (!on_gpus(flags)) return false;
  if (!flags.allreduce_given || flags.allreduce == "auto") return true;
  return std::ranges::any_of(parse_all_reduce_spec(flags.allreduce).ranges,
                             [](const AllReduceRange& range) { return range.strategy == "nccl"; });
}

void check_packing(const TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  const std::pair<const FlagValue&, int> packings[] = {
      {raw.repacking, flags.gradient_repacking}, {raw.small_tensors_kb, flags.small_tensors_kb}};
  for (const auto& [flag, value] : packings)
    require<FlagError>(value == 0 || kind.packs_gradients, flag,
                       " lays gradients end to end, which ", chosen_trainer(flags, raw),
                       " does not do");
  require<FlagError>(flags.gradient_repacking == 0 || flags.small_tensors_kb == 0,
                     raw.small_tensors_kb, " has no use beside ", raw.repacking,
                     ", which packs all gradients; leave one of them out");
}

void choose_buckets(TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  require<FlagError>(flags.bucket_mb == 0 || kind.makes_buckets, raw.bucket_mb, " has no use for ",
                     chosen_trainer(flags, raw), ", which makes no buckets");
  require<FlagError>(flags.bucket_mb == 0 || flags.gradient_repacking == 0, raw.bucket_mb, " and ",
                     raw.repacking,
                     " cut the gradients in two different ways; leave one of them out");
  flags.bucket_mb_given = raw.bucket_mb.given();
  if (!raw.bucket_mb.given() && kind.makes_buckets && flags.gradient_repacking == 0)
    flags.bucket_mb = kDefaultBucketMb;
}

void choose_async(TrainFlags& flags, const RawFlags& raw, const TrainerKind& kind) {
  const std::string& way = raw.async.text();
  require<FlagError>(!raw.async.given() || way == "ordered" || way == "free", raw.async,
                     " is neither ordered nor free");
  require<FlagError>(!raw.async.given() || kind.takes_async(), raw.async,
                     " needs --trainer=async, not ", chosen_trainer(flags, raw));
  flags.async = kind.takes_async() && !raw.async.given() ? "ordered" : way;
  require<FlagError>(flags.async != "free" || !on_gpus(flags), raw.async, " with ",
                     raw.devices.list,
                     ": towers that do not wait for each other run on CPUs alone; ",
                     "use cpu:N, or --async=ordered");
}

void refuse_precision(const TrainFlags& flags, const RawFlags& raw) {
  const std::string refusal = precision_refusal(flags.precision, flags.devices);
  require<FlagError>(refusal.empty(), raw.precision, ": ", refusal);
  require<FlagError>(flags.precision != Precision::kF16 || flags.async != "free", raw.precision,
                     " scales the loss, and with --async=free towers agree on no ",
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
  const auto refuse = [&](const std::string& flag) {
    throw FlagError(cat(flag, " has no use beside ", raw.check_equivalence,
                        ", which runs so many steps in every mode"));
  };
  if (flags.dry_run) refuse("--dry_run");
  if (!flags.explain.empty()) refuse("--explain=" + flags.explain);
  if (flags.log_device_placement) refuse("--log_device_placement");
  for (const FlagValue* other :
       {&raw.trainer, &raw.allreduce, &raw.parameter_device, &raw.repacking, &raw.small_tensors_kb,
        &raw.bucket_mb, &raw.fuse_updates, &raw.share_replicas, &raw.async, &raw.epochs,
        &raw.max_steps})
    if (other->given()) refuse(other->str());
}

void check_shares(const TrainFlags& flags, const RawFlags& raw) {
  const auto towers = std::ssize(flags.devices);
  const std::int64_t batch = flags.batch_size * static_cast<std::int64_t>(towers);
  std::vector<std::int64_t> shares;
  try {
    shares = divide_samples(batch, towers, flags.tower_weights);
  } catch (const OptionError& error) {
    throw FlagError(cat("--", error.what()));
  }
  for (std::size_t t = 0; t < shares.size(); ++t)
    require<FlagError>(shares[t] > 0, raw.tower_weights, " leaves ", flags.devices[t].short_str(),
                       " none of the ", batch, " examples that --batch_size=", flags.batch_size,
                       " on ", towers, " devices makes; use a larger weight or batch");
}

}  // namespace

void check_flags(TrainFlags& flags, RawFlags raw, bool compares_auto) {
  refuse_beside_equivalence(flags, raw);
  refuse_unused_files(flags);
  const bool wishes_auto = raw.allreduce.text() == "auto";
  leave_out_combining(flags, raw);
  const TrainerKind& kind = choose_trainer(flags, raw);
  choose_strategy(flags, raw, kind);
  check_shapes_of_batches(flags, raw, kind);
  check_replicas(flags, raw, kind);
  check_packing(flags, raw, kind);
  choose_buckets(flags, raw, kind);
  choose_async(flags, raw, kind);
  refuse_precision(flags, raw);
  // auto is one of the modes of --check_equivalence. A run that goes on from one that chose may
  // choose, too: train() knows when it has looked.
  const bool may_choose = !flags.restore_checkpoint.empty() && !flags.allreduce_given;
  check_auto_flags(flags.automatic,
                   wishes_auto || flags.check_equivalence > 0 || compares_auto || may_choose,
                   "--allreduce=auto");
  require<FlagError>(!raw.nccl_timeout_s.given() || may_use_nccl(flags), raw.nccl_timeout_s,
                     " is for nccl, which is not used by --allreduce=", flags.allreduce, " on ",
                     short_names(flags.devices));
  const std::string& links = flags.automatic.links;
  require<FlagError>(links.empty() || flags.logical_gpus == 1, "--links=", links,
                     " describes devices with a memory each, not --logical_gpus=",
                     flags.logical_gpus, " that share one; leave one of them out");
  if (flags.allreduce == "auto" && links.empty())
    as_flag(raw.allreduce.str(), [&] {
      check_measurable({flags.devices, flags.threads, flags.logical_gpus});
    });
  check_shares(flags, raw);
}

}  // namespace belfry
