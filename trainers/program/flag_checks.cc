#include <algorithm>
#include <utility>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer_checks.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/measure_machine.h"
#include "belfry/trainers/program/flag_checks_impl.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// What inspects or compares keeps nothing of a training run, and goes on from none.
void refuse_unused_files(const TrainFlags& flags) {
  require<FlagError>(flags.files.save_checkpoint != "-",
                     "--save_checkpoint=-: a checkpoint is a directory, so it cannot go to "
                     "standard output; name one (./- for one of this name)");
  const std::string_view why = flags.inspection.dry_run                 ? "--dry_run"
                               : flags.inspection.summary               ? "--summary"
                               : !flags.inspection.explain.empty()      ? "--explain"
                               : flags.inspection.check_equivalence > 0 ? "--check_equivalence"
                                                                        : "";
  if (why.empty()) return;
  const std::string none;
  const std::pair<const char*, const std::string&> files[] = {
      {"--trace_file", flags.files.trace_file},
      {"--save_checkpoint", flags.files.save_checkpoint},
      {"--restore_checkpoint", flags.files.restore_checkpoint},
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

// What to do about a strategy that a trainer does not take.
std::string without_strategy(const std::string& spec) {
  for (const std::string& name : trainer_names())
    if (const TrainerKind& other = find_trainer(name); other.accepts && other.accepts(spec))
      return cat("; leave it out, or write --trainer=", name);
  return "; leave it out";
}

class FlagChecks {
 public:
  FlagChecks(TrainFlags& flags, const FlagParser& parser) : flags_(flags), parser_(parser) {}

  void run(bool compares_auto) {
    refuse_beside_equivalence();
    refuse_unused_files(flags_);
    const bool wishes_auto = aggregation_.allreduce == "auto";
    leave_out_combining();
    choose_trainer();
    choose_strategy();
    leave_out_partition();
    check_shapes_of_batches();
    check_replicas();
    check_packing();
    choose_buckets();
    check_async();
    refuse_precision();
    // auto is one of the modes of --check_equivalence. A run that goes on from one that chose may
    // choose, too: train() knows when it has looked.
    const std::string& resume = flags_.run.resume;
    const bool goes_on = !flags_.files.restore_checkpoint.empty() ||
                         !flags_.run.directory.empty() || (resume != "auto" && resume != "never");
    const bool may_choose = goes_on && !flags_.given.allreduce;
    check_auto_flags(
        flags_.automatic, aggregation_.choice.any,
        wishes_auto || flags_.inspection.check_equivalence > 0 || compares_auto || may_choose,
        "--allreduce=auto");
    check_links();
    check_shares();
    as_option([&] { check_shards(trainer_, *kind_, flags_.group.processes); });
    as_option([&] { check_clipping(trainer_, *kind_); });
    as_option([&] { check_accumulation(trainer_, *kind_); });
    as_option([&] { check_partition(trainer_, *kind_); });
  }

 private:
  // Of flags that were not left out.
  bool given(const char* name) const {
    return parser_.given(name) && std::ranges::find(left_out_, name) == left_out_.end();
  }
  std::string written(const char* name) const { return parser_.flag(name).written; }

  // "--trainer=simple (chosen for --devices=cpu:1)".
  std::string chosen_trainer() const {
    return given("--trainer")
               ? written("--trainer")
               : cat("--trainer=", flags_.kind, " (chosen for ", written("--devices"), ")");
  }

  // --check_equivalence chooses the modes and the number of steps itself.
  void refuse_beside_equivalence() const {
    if (flags_.inspection.check_equivalence == 0) return;
    const auto refuse = [&](const std::string& flag) {
      throw FlagError(cat(flag, " has no use beside ", written("--check_equivalence"),
                          ", which runs so many steps in every mode; leave one of them out"));
    };
    if (flags_.inspection.dry_run) refuse("--dry_run");
    if (flags_.inspection.summary) refuse("--summary");
    if (!flags_.inspection.explain.empty()) refuse("--explain=" + flags_.inspection.explain);
    if (trainer_.session.log_device_placement) refuse("--log_device_placement");
    for (const char* other :
         {"--trainer", "--allreduce", "--parameter_device", "--gradient_repacking",
          "--small_tensors_kb", "--bucket_mb", "--fuse", "--share_replicas", "--async", "--epochs",
          "--max_steps", "--early_stop"})
      if (given(other)) refuse(written(other));
  }

  // One device has nothing to combine, so what says how is left out. No error, as it would end
  // every sweep over numbers of devices.
  void leave_out_combining() {
    if (trainer_.devices.size() != 1 || flags_.group.processes > 1 || given("--trainer") ||
        flags_.inspection.check_equivalence > 0)
      return;
    if (given("--allreduce"))
      as_flag(written("--allreduce"), [&] {
        const std::string spec = underscores_in_names(aggregation_.allreduce);
        if (!parse_all_reduce_spec(spec).is_auto()) aggregation_.unused_allreduce = spec;
      });
    const std::pair<const char*, bool> combining[] = {
        {"--allreduce", true},
        {"--gradient_repacking", aggregation_.gradient_repacking > 0},
        {"--small_tensors_kb", aggregation_.small_tensors_kb > 0},
        {"--bucket_mb", aggregation_.bucket_mb > 0},
        {"--share_replicas", trainer_.session.share_replicas}};
    std::vector<std::string> unused;
    for (const auto& [flag, asks] : combining) {
      if (given(flag) && asks) unused.push_back(written(flag));
      if (asks) left_out_.emplace_back(flag);
    }
    aggregation_.gradient_repacking = aggregation_.small_tensors_kb = 0;
    aggregation_.bucket_mb = 0;
    if (!unused.empty())
      log_warning(join(unused), unused.size() == 1 ? " has" : " have", " no use for ",
                  written("--devices"),
                  ": one device has nothing to combine, so --trainer=simple trains without");
  }

  void choose_trainer() {
    const std::int64_t towers = towers_of(trainer_, flags_.group.processes);
    flags_.kind = given("--trainer") ? underscores_in_names(flags_.kind)
                  : towers == 1      ? "simple"
                                     : "replicated";
    kind_ = as_flag(written("--trainer"), [&] { return &find_trainer(flags_.kind); });
    require<FlagError>(!kind_->takes_one_device || towers == 1, chosen_trainer(),
                       " takes one device, but ", written("--devices"), " has ", towers,
                       "; use --devices=cpu:1, or --trainer=replicated");
    require<FlagError>(!given("--parameter_device") || kind_->spreads_variables(),
                       written("--parameter_device"), " has no use for ", chosen_trainer(),
                       ", which does not spread variables; say --trainer=parameter_server");
  }

  void choose_strategy() {
    std::string& allreduce = aggregation_.allreduce;
    flags_.given.allreduce = given("--allreduce");
    allreduce = flags_.given.allreduce ? underscores_in_names(allreduce) : kind_->default_strategy;
    if (allreduce.empty()) return;
    const std::string flag = written("--allreduce");
    const bool chooses = as_flag(flag, [&] { return parse_all_reduce_spec(allreduce).is_auto(); });
    const std::string_view why_not =
        kind_->accepts         ? " does not take "
        : kind_->takes_async() ? " combines no gradients: those of each tower update the variables "
                                 "by themselves, so it takes no "
        : kind_->takes_one_device ? " has no gradients to combine, so it takes no "
                                  : " combines gradients in a way of its own, so it takes no ";
    require<FlagError>(kind_->accepts && kind_->accepts(allreduce), chosen_trainer(), why_not, flag,
                       without_strategy(allreduce));
    // Several processes ask again when they have met.
    const bool asks = !chooses && flags_.group.processes == 1;
    const std::string refusal = asks ? make_strategy(allreduce)->refusal(trainer_.devices) : "";
    if (refusal.empty()) return;
    require<FlagError>(trainer_.devices.size() == 1, flag, ": ", refusal, " (",
                       written("--devices"), " has ", trainer_.devices.size(), ")");
    log_warning(flag, " has no use for ", written("--devices"),
                ", as one device has nothing to combine; --allreduce=", kind_->default_strategy,
                " takes its place");
    allreduce = kind_->default_strategy;
  }

  // No error, as a run may go on with fewer processes.
  void leave_out_partition() {
    if (!aggregation_.partition_updates || flags_.group.processes > 1) return;
    log_warning(written("--partition_updates"),
                " changes nothing: one process keeps all slots, and updates whole variables");
    aggregation_.partition_updates = false;
  }

  void check_shapes_of_batches() const {
    const bool unequal = makes_unequal(trainer_.batches.uneven);
    const bool weighted = !trainer_.batches.tower_weights.empty();
    require<FlagError>(kind_->combines() || (!unequal && !weighted),
                       written(unequal ? "--uneven" : "--tower_weights"),
                       " gives devices batches of different sizes, which ", chosen_trainer(),
                       " does not take; leave it out, or use --trainer=replicated");
    require<FlagError>(!unequal || trainer_.batches.gradient_accumulation_steps == 1,
                       written("--gradient_accumulation_steps"),
                       " takes the mean over batches of one size, and ", written("--uneven"),
                       " makes a smaller last one; use --uneven=drop or --uneven=error");
    require<FlagError>(!kind_->takes_one_device || !weighted, written("--tower_weights"),
                       " has no use for ", chosen_trainer(),
                       ", which takes one device; leave it out");
  }

  void check_replicas() const {
    const char* const flag = "--share_replicas";
    require<FlagError>(
        !given(flag) || !trainer_.session.share_replicas || kind_->replicates_variables(),
        written(flag), " has no use for ", chosen_trainer(),
        ", which has no replicas; leave it out");
  }

  void check_packing() const {
    const std::pair<const char*, int> packings[] = {
        {"--gradient_repacking", aggregation_.gradient_repacking},
        {"--small_tensors_kb", aggregation_.small_tensors_kb}};
    for (const auto& [flag, value] : packings)
      require<FlagError>(value == 0 || kind_->packs_gradients, written(flag),
                         " lays gradients end to end, which ", chosen_trainer(),
                         " does not do; leave it out, or use --trainer=replicated");
    require<FlagError>(aggregation_.gradient_repacking == 0 || aggregation_.small_tensors_kb == 0,
                       written("--small_tensors_kb"), " has no use beside ",
                       written("--gradient_repacking"),
                       ", which packs all gradients; leave one of them out");
  }

  void choose_buckets() {
    double& size = aggregation_.bucket_mb;
    require<FlagError>(size == 0 || kind_->makes_buckets, written("--bucket_mb"),
                       " has no use for ", chosen_trainer(),
                       ", which makes no buckets; leave it out");
    require<FlagError>(size == 0 || aggregation_.gradient_repacking == 0, written("--bucket_mb"),
                       " and ", written("--gradient_repacking"),
                       " cut the gradients in two different ways; leave one of them out");
    if (given("--bucket_mb"))
      aggregation_.choice.buckets = {size};
    else if (kind_->makes_buckets && aggregation_.gradient_repacking == 0)
      size = kDefaultBucketMb;
  }

  void check_async() const {
    require<FlagError>(!given("--async") || kind_->takes_async(), written("--async"),
                       " needs --trainer=async, not ", chosen_trainer());
    require<FlagError>(trainer_.async != "free" || !any_gpu(trainer_.devices), written("--async"),
                       " with ", written("--devices"),
                       ": towers that do not wait for each other run on CPUs alone; ",
                       "use cpu:N, or --async=ordered");
  }

  void refuse_precision() const {
    const std::string refusal = precision_refusal(trainer_.precision, trainer_.devices);
    require<FlagError>(refusal.empty(), written("--precision"), ": ", refusal);
    require<FlagError>(trainer_.precision != Precision::kF16 || trainer_.async != "free",
                       written("--precision"),
                       " scales the loss, and with --async=free towers agree on no ",
                       "scale; use --precision=bf16, which needs none, or --async=ordered");
  }

  void check_links() const {
    const std::string& links = flags_.automatic.links;
    require<FlagError>(links.empty() || trainer_.session.logical_gpus == 1, "--links=", links,
                       " describes devices with a memory each, not --logical_gpus=",
                       trainer_.session.logical_gpus, " that share one; leave one of them out");
    if (aggregation_.allreduce == "auto" && links.empty())
      as_flag(written("--allreduce"), [&] { check_measurable(measured_devices(trainer_)); });
  }

  // Calls `check`. The flag of an option that it refuses is the option's name.
  template <class Check>
  static void as_option(const Check& check) {
    try {
      check();
    } catch (const OptionError& error) {
      throw FlagError(cat("--", error.what()));
    }
  }

  void check_shares() const {
    const std::int64_t towers = towers_of(trainer_, flags_.group.processes);
    const std::int64_t batch = trainer_.batch_size * towers;
    std::vector<std::int64_t> shares;
    as_option([&] { shares = divide_samples(batch, towers, trainer_.batches.tower_weights); });
    for (std::size_t t = 0; t < shares.size(); ++t)
      require<FlagError>(shares[t] > 0, written("--tower_weights"), " leaves ",
                         trainer_.devices[t % trainer_.devices.size()].short_str(), " none of the ",
                         batch, " examples that ",
                         flags_.global_batch_size > 0
                             ? cat("--global_batch_size=", flags_.global_batch_size)
                             : cat("--batch_size=", trainer_.batch_size),
                         " on ", towers, " devices makes; use a larger weight or batch");
  }

  TrainFlags& flags_;
  const FlagParser& parser_;
  TrainerOptions& trainer_ = flags_.trainer;
  AggregationOptions& aggregation_ = trainer_.aggregation;
  const TrainerKind* kind_ = nullptr;
  std::vector<std::string> left_out_;  // flags
};

}  // namespace

void count_processes(TrainFlags& flags, const FlagParser& parser) {
  if (!parser.given("--processes")) {
    require<FlagError>(
        !parser.given("--processes_per_host"), parser.flag("--processes_per_host").written,
        " says how the processes of a plan lie; give --dry_run and --processes, too");
    flags.group.processes = flags.group.launcher.size;
    return;
  }
  const std::string written = parser.flag("--processes").written;
  const int wanted = flags.group.processes, started = flags.group.launcher.size;
  require<FlagError>(flags.inspection.dry_run, written,
                     " needs --dry_run, which plans one of so many; a run ",
                     "has the processes that a launcher starts: mpirun -n ", wanted,
                     ", or belfry run -n ", wanted);
  require<FlagError>(started == 1 || started == wanted, written, ", but a launcher has started ",
                     started, " (", flags.group.launcher.evidence,
                     "); leave the flag out, or plan without the launcher");
}

void divide_global_batch(TrainFlags& flags, const FlagParser& parser) {
  if (flags.global_batch_size == 0) return;
  const auto devices = static_cast<int>(towers_of(flags.trainer, flags.group.processes));
  const std::string given =
      parser.given("--global_batch_size")
          ? parser.flag("--global_batch_size").written
          : cat("the program's --global_batch_size=", flags.global_batch_size);
  require<FlagError>(!parser.given("--batch_size"), given, " is for all devices together, ",
                     parser.flag("--batch_size").written,
                     " for each of them; leave one of them out");
  require<FlagError>(flags.global_batch_size % devices == 0, given, " cannot be divided among ",
                     devices, " devices alike; use a multiple of ", devices);
  flags.trainer.batch_size = flags.global_batch_size / devices;
  flags.trainer.batches.global = true;
}

void check_flags(TrainFlags& flags, const FlagParser& parser, bool compares_auto) {
  FlagChecks(flags, parser).run(compares_auto);
}

}  // namespace belfry
