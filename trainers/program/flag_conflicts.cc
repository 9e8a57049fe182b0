#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/auto_choice.h"
#include "belfry/trainers/core/trainer_checks.h"
#include "belfry/trainers/machine/measure_machine.h"
#include "belfry/trainers/program/flag_conflicts_impl.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// --check_equivalence chooses the modes and the number of steps itself.
void refuse_beside_equivalence(const TrainFlags& flags, const UsedFlags& used) {
  if (flags.inspection.check_equivalence == 0) return;
  const auto refuse = [&](const std::string& flag) {
    throw FlagError(cat(flag, " has no use beside ", used.written("--check_equivalence"),
                        ", which runs so many steps in every mode; leave one of them out"));
  };
  if (flags.inspection.dry_run) refuse("--dry_run");
  if (flags.inspection.summary) refuse("--summary");
  if (!flags.inspection.explain.empty()) refuse("--explain=" + flags.inspection.explain);
  if (flags.trainer.session.log_device_placement) refuse("--log_device_placement");
  for (const char* other :
       {"--trainer", "--allreduce", "--parameter_device", "--gradient_repacking",
        "--small_tensors_kb", "--bucket_mb", "--fuse", "--share_replicas", "--async", "--epochs",
        "--max_steps", "--early_stop", "--on_nonfinite"})
    if (used.given(other)) refuse(used.written(other));
}

// A program that inspects or compares keeps nothing of a training run, and does not go on from one.
void refuse_unused_files(const TrainFlags& flags) {
  const std::string_view why = flags.inspection.dry_run                 ? "--dry_run"
                               : flags.inspection.summary               ? "--summary"
                               : !flags.inspection.explain.empty()      ? "--explain"
                               : flags.inspection.check_equivalence > 0 ? "--check_equivalence"
                                                                        : "";
  if (why.empty()) return;
  const std::string none;
  const std::pair<const char*, const std::string&> files[] = {
      {"--trace_file", flags.files.trace_file},
      {"--run_dir", flags.run.directory},
      {"--resume",
       flags.run.resume == "auto" || flags.run.resume == "never" ? none : flags.run.resume},
      {"--load", flags.run.load}};
  for (const auto& [flag, value] : files)
    require<FlagError>(value.empty(), flag, "=", value, " has no use beside ", why,
                       ", which keeps nothing of a training run; leave one of them out");
  require<FlagError>(flags.files.memory_report.empty() || flags.inspection.dry_run,
                     "--memory_report=", flags.files.memory_report, " has no use beside ", why,
                     ", which is no training run; leave one of them out");
}

// Calls `check`. Its OptionError becomes a mistake, in the words of flags: they set the option.
template <class Check>
void as_option(const Check& check) {
  const FlagsNameOptions flags_name_options;
  try {
    check();
  } catch (const OptionError& error) {
    throw FlagError(error.fields());
  }
}

// Checks the flags once the trainer is chosen.
class FlagConflicts {
 public:
  FlagConflicts(const TrainFlags& flags, const UsedFlags& used, const TrainerKind& kind)
      : flags_(flags), used_(used), kind_(kind) {}

  void refuse(bool wishes_auto) const {
    check_shapes_of_batches();
    check_replicas();
    check_packing();
    check_buckets();
    check_async();
    check_precision();
    check_auto(wishes_auto);
    check_links();
    check_shares();
    check_averages();
    as_option([&] { check_shards(trainer_, kind_, flags_.group.processes); });
    as_option([&] { check_clipping(trainer_, kind_); });
    as_option([&] { check_accumulation(trainer_, kind_); });
    as_option([&] { check_partition(trainer_, kind_); });
  }

 private:
  std::string trainer() const { return used_.trainer(flags_.kind); }

  void check_shapes_of_batches() const {
    const bool unequal = makes_unequal(trainer_.batches.uneven);
    const bool weighted = !trainer_.batches.tower_weights.empty();
    require<FlagError>(kind_.combines() || (!unequal && !weighted),
                       used_.written(unequal ? "--uneven" : "--tower_weights"),
                       " gives devices batches of different sizes, which ", trainer(),
                       " does not take; leave it out, or use --trainer=replicated");
    require<FlagError>(!unequal || trainer_.batches.gradient_accumulation_steps == 1,
                       used_.written("--gradient_accumulation_steps"),
                       " takes the mean over batches of one size, and ", used_.written("--uneven"),
                       " makes a smaller last one; use --uneven=drop or --uneven=error");
    require<FlagError>(!kind_.takes_one_device || !weighted, used_.written("--tower_weights"),
                       " has no use for ", trainer(), ", which takes one device; leave it out");
  }

  void check_replicas() const {
    const char* const flag = "--share_replicas";
    require<FlagError>(
        !used_.given(flag) || !trainer_.session.share_replicas || kind_.replicates_variables(),
        used_.written(flag), " has no use for ", trainer(),
        ", which has no replicas; leave it out");
  }

  void check_averages() const {
    require<FlagError>(flags_.optimizer.moving_average || !flags_.optimizer.moving_average_warmup,
                       "--moving_average_warmup is about --moving_average; name that, too");
  }

  void check_packing() const {
    const std::pair<const char*, int> packings[] = {
        {"--gradient_repacking", aggregation_.gradient_repacking},
        {"--small_tensors_kb", aggregation_.small_tensors_kb}};
    for (const auto& [flag, value] : packings)
      require<FlagError>(value == 0 || kind_.packs_gradients, used_.written(flag),
                         " lays gradients end to end, which ", trainer(),
                         " does not do; leave it out, or use --trainer=replicated");
    require<FlagError>(aggregation_.gradient_repacking == 0 || aggregation_.small_tensors_kb == 0,
                       used_.written("--small_tensors_kb"), " has no use beside ",
                       used_.written("--gradient_repacking"),
                       ", which packs all gradients; leave one of them out");
  }

  void check_buckets() const {
    const double size = aggregation_.bucket_mb;
    require<FlagError>(size == 0 || kind_.makes_buckets, used_.written("--bucket_mb"),
                       " has no use for ", trainer(), ", which makes no buckets; leave it out");
    require<FlagError>(size == 0 || aggregation_.gradient_repacking == 0,
                       used_.written("--bucket_mb"), " and ", used_.written("--gradient_repacking"),
                       " cut the gradients in two different ways; leave one of them out");
  }

  void check_async() const {
    require<FlagError>(!used_.given("--async") || kind_.takes_async(), used_.written("--async"),
                       " needs --trainer=async, not ", trainer());
    require<FlagError>(trainer_.async != "free" || !any_gpu(trainer_.devices),
                       used_.written("--async"), " with ", used_.written("--devices"),
                       ": towers that do not wait for each other run on CPUs alone; ",
                       "use cpu:N, or --async=ordered");
  }

  void check_precision() const {
    const std::string refusal = precision_refusal(trainer_.precision, trainer_.devices);
    require<FlagError>(refusal.empty(), used_.written("--precision"), ": ", refusal);
    require<FlagError>(trainer_.precision != Precision::kF16 || trainer_.async != "free",
                       used_.written("--precision"),
                       " scales the loss, and with --async=free towers agree on no ",
                       "scale; use --precision=bf16, which needs none, or --async=ordered");
  }

  // --check_equivalence has auto among its modes. A run that goes on from one that chose may
  // choose, too: train() finds out when it reads the checkpoint.
  void check_auto(bool wishes_auto) const {
    const std::string& resume = flags_.run.resume;
    const bool goes_on = !flags_.run.directory.empty() || (resume != "auto" && resume != "never");
    const bool may_choose = goes_on && !flags_.given.allreduce;
    check_auto_flags(flags_.automatic, aggregation_.choice.any,
                     wishes_auto || flags_.inspection.check_equivalence > 0 || may_choose,
                     "--allreduce=auto");
  }

  void check_links() const {
    const std::string& links = flags_.automatic.links;
    require<FlagError>(links.empty() || trainer_.session.logical_gpus == 1, "--links=", links,
                       " describes devices with a memory each, not --logical_gpus=",
                       trainer_.session.logical_gpus, " that share one; leave one of them out");
    if (aggregation_.allreduce == "auto" && links.empty())
      as_flag(used_.written("--allreduce"), [&] { check_measurable(measured_devices(trainer_)); });
  }

  void check_shares() const {
    // All processes share a batch.
    const std::int64_t towers = towers_of(trainer_, flags_.group.processes);
    const std::int64_t batch = trainer_.batch_size * towers;
    std::vector<std::int64_t> shares;
    as_option([&] { shares = divide_samples(batch, towers, trainer_.batches.tower_weights); });
    for (std::size_t t = 0; t < shares.size(); ++t)
      require<FlagError>(shares[t] > 0, used_.written("--tower_weights"), " leaves ",
                         trainer_.devices[t % trainer_.devices.size()].short_str(), " none of the ",
                         batch, " examples that ",
                         flags_.global_batch_size > 0
                             ? cat("--global_batch_size=", flags_.global_batch_size)
                             : cat("--batch_size=", trainer_.batch_size),
                         " on ", towers, " devices makes; use a larger weight or batch");
  }

  const TrainFlags& flags_;
  const UsedFlags& used_;
  const TrainerKind& kind_;
  const TrainerOptions& trainer_ = flags_.trainer;
  const AggregationOptions& aggregation_ = trainer_.aggregation;
};

}  // namespace

bool UsedFlags::given(const std::string& name) const {
  return parser_.given(name) && std::ranges::find(left_out_, name) == left_out_.end();
}

std::string UsedFlags::trainer(const std::string& kind) const {
  return given("--trainer") ? written("--trainer")
                            : cat("--trainer=", kind, " (chosen for ", written("--devices"), ")");
}

void refuse_beside_inspection(const TrainFlags& flags, const UsedFlags& used) {
  refuse_beside_equivalence(flags, used);
  refuse_unused_files(flags);
}

void refuse_conflicts(const TrainFlags& flags, const UsedFlags& used, const TrainerKind& kind,
                      bool wishes_auto) {
  FlagConflicts(flags, used, kind).refuse(wishes_auto);
}

}  // namespace belfry
