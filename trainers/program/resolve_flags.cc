#include "belfry/trainers/program/resolve_flags.h"

#include <algorithm>
#include <utility>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/program/flag_conflicts_impl.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace {

// The advice for a strategy that a trainer does not take.
std::string without_strategy(const std::string& spec) {
  for (const std::string& name : trainer_names())
    if (const TrainerKind& other = find_trainer(name); other.accepts && other.accepts(spec))
      return cat("; leave it out, or write --trainer=", name);
  return "; leave it out";
}

// Chooses what other flags leave open, in this order: each choice depends on those before it.
class FlagChoices {
 public:
  FlagChoices(TrainFlags& flags, UsedFlags& used) : flags_(flags), used_(used) {}

  // Returns the trainer. Throws FlagError for a trainer that these devices, or a strategy that this
  // trainer, cannot have.
  const TrainerKind& choose() {
    if (trainer_.evaluates_only) return choose_for_evaluation();
    leave_out_combining();
    choose_trainer();
    choose_strategy();
    leave_out_partition();
    choose_buckets();
    return *kind_;
  }

 private:
  std::string trainer() const { return used_.trainer(flags_.kind); }

  // Any number of devices evaluates, and combines nothing.
  const TrainerKind& choose_for_evaluation() {
    flags_.kind = "replicated";
    aggregation_.allreduce.clear();
    return find_trainer(flags_.kind);
  }

  // One device has nothing to combine, so flags about combining are ignored. An error would end
  // every sweep over numbers of devices.
  void leave_out_combining() {
    if (trainer_.devices.size() != 1 || flags_.group.processes > 1 || used_.given("--trainer") ||
        flags_.inspection.check_equivalence > 0)
      return;
    if (used_.given("--allreduce"))
      as_flag(used_.written("--allreduce"), [&] {
        const std::string spec = underscores_in_names(aggregation_.allreduce);
        if (!parse_all_reduce_spec(spec).is_auto()) aggregation_.unused_allreduce = spec;
      });
    std::vector<std::string> unused;
    for (const Option<TrainFlags>& option : *flags_.table) {
      const std::string flag = "--" + option.name;
      if (!option.combines || text_of(option.value(flags_)) == "0") continue;
      if (used_.given(flag)) unused.push_back(used_.written(flag));
      used_.leave_out(flag);
    }
    aggregation_.gradient_repacking = aggregation_.small_tensors_kb = 0;
    aggregation_.bucket_mb = 0;
    if (!unused.empty())
      log_warning(join(unused), unused.size() == 1 ? " has" : " have", " no use for ",
                  used_.written("--devices"),
                  ": one device has nothing to combine, so --trainer=simple trains without");
  }

  void choose_trainer() {
    const std::int64_t towers = towers_of(trainer_, flags_.group.processes);
    flags_.kind = used_.given("--trainer") ? underscores_in_names(flags_.kind)
                  : towers == 1            ? "simple"
                                           : "replicated";
    kind_ = as_flag(used_.written("--trainer"), [&] { return &find_trainer(flags_.kind); });
    require_flag(!kind_->takes_one_device || towers == 1, "trainer", trainer(),
                 " takes one device, but ", used_.written("--devices"), " has ", towers,
                 "; use --devices=cpu:1, or --trainer=replicated");
  }

  void choose_strategy() {
    std::string& allreduce = aggregation_.allreduce;
    const bool is_given = used_.given("--allreduce");
    allreduce = is_given ? underscores_in_names(allreduce) : kind_->default_strategy;
    if (allreduce.empty()) return;
    if (!is_given) choose_for_separate_gpus();
    const std::string flag = used_.written("--allreduce");
    const bool chooses = as_flag(flag, [&] { return parse_all_reduce_spec(allreduce).is_auto(); });
    const std::string_view why_not =
        kind_->accepts       ? " does not take "
        : !kind_->combines() ? " combines no gradients: those of each tower update the variables "
                               "by themselves, so it takes no "
        : kind_->takes_one_device ? " has no gradients to combine, so it takes no "
                                  : " combines gradients in a way of its own, so it takes no ";
    require_flag(kind_->accepts && kind_->accepts(allreduce), "allreduce", trainer(), why_not, flag,
                 without_strategy(allreduce));
    if (chooses) {
      if (flags_.links.empty()) take_default(flag);
      return;
    }
    if (flags_.group.processes > 1) return;  // they check this when they have met
    const std::string refusal = make_strategy(allreduce)->refusal(trainer_.devices);
    if (refusal.empty()) return;
    require_flag(trainer_.devices.size() == 1, "allreduce", flag, ": ", refusal, " (",
                 used_.written("--devices"), " has ", trainer_.devices.size(), ")");
    log_warning(flag, " has no use for ", used_.written("--devices"),
                ", as one device has nothing to combine; --allreduce=", kind_->default_strategy,
                " takes its place");
    allreduce = kind_->default_strategy;
  }

  // Without a machine to predict for, `auto` is what is known to be best.
  void take_default(const std::string& flag) {
    aggregation_.allreduce = kind_->default_strategy;
    choose_for_separate_gpus();
    log_info(flag, " takes ", aggregation_.allreduce,
             ": no machine is described to choose by (--links=FILE)");
  }

  // The default strategy reads the memory of other GPUs. NCCL finds a way between any two.
  void choose_for_separate_gpus() {
    if (flags_.inspection.dry_run || !kind_->accepts || !kind_->accepts("nccl")) return;
    SessionOptions session = trainer_.session;
    session.device_count = device_count(trainer_.devices);
    const std::string why = unreachable_gpus(session);
    if (why.empty() || gpus().backend()->nccl().version == 0) return;
    log_warning(why, ", so --allreduce=nccl takes the place of ", kind_->default_strategy);
    aggregation_.allreduce = "nccl";
  }

  // This is no error, because a run may resume with fewer processes.
  void leave_out_partition() {
    if (aggregation_.zero_stage == 0 || flags_.group.processes > 1) return;
    log_warning(used_.written("--zero_stage"),
                " changes nothing: one process keeps all slots, and updates whole variables");
    aggregation_.zero_stage = 0;
  }

  void choose_buckets() {
    if (used_.given("--bucket_mb"))
      aggregation_.choice.buckets = {aggregation_.bucket_mb};
    else if (kind_->makes_buckets && aggregation_.gradient_repacking == 0)
      aggregation_.bucket_mb = default_bucket_mb(flags_.group.processes);
  }

  TrainFlags& flags_;
  UsedFlags& used_;
  TrainerOptions& trainer_ = flags_.trainer;
  AggregationOptions& aggregation_ = trainer_.aggregation;
  const TrainerKind* kind_ = nullptr;
};

// A configuration keeps the number of shards of its run, because it decides bits. If other devices
// or another batch cannot have that number, the run chooses another one, and a warning says so.
void leave_out_shards_of_file(TrainFlags& flags, const FlagParser& parser,
                              const TrainerKind& kind) {
  if (!parser.flag("--shards").of_file) return;
  const std::string why = shards_refusal(flags.trainer, kind.facts(), flags.group.processes);
  if (why.empty()) return;
  log_warning("--config=", shown(parser.flag("--config").value),
              ": --shards=", flags.trainer.shards, why,
              "; the file's number is left out, so this run has other bits than with it "
              "(--shards on the command line sets one)");
  flags.trainer.shards = 0;
}

// Makes the program's batch fit all GPUs of the machine. The user has asked for neither.
void round_global_batch(TrainFlags& flags, int devices) {
  const int parts = (flags.global_batch_size + devices - 1) / devices;
  if (parts * devices == flags.global_batch_size) return;
  log_warning("the program's --global_batch_size=", flags.global_batch_size,
              " cannot be divided among ", devices, " devices alike, so a step takes ",
              parts * devices,
              " examples, and results differ from those of other numbers of devices");
  flags.global_batch_size = parts * devices;
}

}  // namespace

void count_processes(TrainFlags& flags, const FlagParser& parser) {
  if (!parser.given("--processes")) {
    require_flag(!parser.given("--processes_per_host"), "processes_per_host",
                 parser.flag("--processes_per_host").written,
                 " says how the processes of a plan lie; give --dry_run and --processes, too");
    flags.group.processes = flags.group.launcher.size;
    return;
  }
  const std::string written = parser.flag("--processes").written;
  const int wanted = flags.group.processes, started = flags.group.launcher.size;
  require_flag(flags.inspection.dry_run, "processes", written,
               " needs --dry_run, which plans one of so many; a run ",
               "has the processes that a launcher starts: mpirun -n ", wanted,
               ", or belfry run -n ", wanted);
  require_flag(started == 1 || started == wanted, "processes", written,
               ", but a launcher has started ", started, " (", flags.group.launcher.evidence,
               "); leave the flag out, or plan without the launcher");
}

void divide_global_batch(TrainFlags& flags, const FlagParser& parser) {
  if (flags.global_batch_size == 0) return;
  const auto devices = static_cast<int>(towers_of(flags.trainer, flags.group.processes));
  const bool is_given = parser.given("--global_batch_size");
  const bool evaluates = flags.trainer.evaluates_only;  // RunStart::adopt() divides it
  if (!is_given && !parser.given("--devices") && !evaluates) round_global_batch(flags, devices);
  const std::string given =
      is_given ? parser.flag("--global_batch_size").written
               : cat("the program's --global_batch_size=", flags.global_batch_size);
  require_flag(!parser.given("--batch_size"), "global_batch_size", given,
               " is for all devices together, ", parser.flag("--batch_size").written,
               " for each of them; leave one of them out");
  const int next = (flags.global_batch_size / devices + 1) * devices;
  require_flag(evaluates || flags.global_batch_size % devices == 0, "global_batch_size", given,
               " cannot be divided among ", devices, " devices alike",
               flags.group.processes > 1 ? cat(" (of ", flags.group.processes, " processes)") : "",
               is_given
                   ? cat("; use a multiple of ", devices)
                   : cat("; give a multiple of ", devices, ", such as --global_batch_size=", next));
  flags.trainer.batch_size = std::max(flags.global_batch_size / devices, 1);
  flags.trainer.batches.global = true;
}

void resolve_flags(TrainFlags& flags, const FlagParser& parser, bool compares_auto) {
  UsedFlags used(parser);
  refuse_beside_inspection(flags, used);
  const bool wishes_auto = compares_auto || flags.trainer.aggregation.allreduce == "auto";
  const TrainerKind& kind = FlagChoices(flags, used).choose();
  leave_out_shards_of_file(flags, parser, kind);
  refuse_conflicts(flags, used, kind, wishes_auto);
}

}  // namespace belfry
