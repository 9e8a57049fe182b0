#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/training_sizes.h"
#include "belfry/trainers/program/flag_conflicts_impl.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// A switch that says false, and a number that is 0, ask for nothing.
bool asks(const Option<TrainFlags>& option, const TrainFlags& flags) {
  return !option.value || text_of(option.value(flags)) != "0";
}

// --check_equivalence chooses the modes and the number of steps itself.
void refuse_beside_equivalence(const TrainFlags& flags, const UsedFlags& used) {
  if (flags.inspection.check_equivalence == 0) return;
  for (const Option<TrainFlags>& option : *flags.table) {
    const std::string flag = "--" + option.name;
    const bool is_off = option.unit.empty() && !asks(option, flags);
    require_flag(option.compared || is_off || !used.given(flag), option.name, used.written(flag),
                 " has no use beside ", used.written("--check_equivalence"),
                 ", which runs so many steps in every mode; leave one of them out");
  }
}

// A program that inspects or compares keeps no training run, and resumes none.
void refuse_unused_files(const TrainFlags& flags, const UsedFlags& used) {
  const std::string_view why = flags.inspection.dry_run                 ? "--dry_run"
                               : flags.inspection.summary               ? "--summary"
                               : !flags.inspection.explain.empty()      ? "--explain"
                               : flags.inspection.check_equivalence > 0 ? "--check_equivalence"
                               : !flags.files.step.empty()              ? "--write_step"
                                                                        : "";
  if (why.empty()) return;
  const auto names_none = [&](const OptionRow& row) {
    if (row.name == "load") return !flags.files.step.empty();
    return row.name == "resume" && (flags.run.resume == "auto" || flags.run.resume == "never");
  };
  require_flag(flags.files.step.empty() || why == "--write_step", "write_step",
               "--write_step=", flags.files.step, " has no use beside ", why,
               ", which writes no step; leave one of them out");
  for (const Option<TrainFlags>& option : *flags.table) {
    const std::string flag = "--" + option.name;
    require_flag(!option.of_training || !used.given(flag) || names_none(option), option.name,
                 used.written(flag), " has no use beside ", why,
                 ", which keeps nothing of a training run; leave one of them out");
  }
  require_flag(flags.files.memory_report.empty() || flags.inspection.dry_run, "memory_report",
               "--memory_report=", flags.files.memory_report, " has no use beside ", why,
               ", which is no training run; leave one of them out");
  require_flag(flags.files.json.empty() || flags.files.step.empty(), "json",
               "--json=", flags.files.json,
               " has no use beside --write_step, which writes one file; leave it "
               "out");
}

// --evaluate_only writes no run, needs weights, and trains nothing.
void check_evaluate_only(const TrainFlags& flags, const UsedFlags& used) {
  if (!flags.trainer.evaluates_only) return;
  require<FlagError>(!flags.plans(), "--evaluate_only has no use beside --dry_run, --summary or ",
                     "--explain, which compute nothing; leave one of them out");
  require<FlagError>(flags.files.step.empty(), "--evaluate_only computes no gradients that ",
                     "--write_step=", flags.files.step, " could write; leave one of them out");
  require<FlagError>(flags.run.directory.empty(), "--evaluate_only writes no run directory; name ",
                     "the run to evaluate by --load=", flags.run.directory,
                     " instead of --run_dir=", flags.run.directory);
  const bool resumes = flags.run.resume != "auto" && flags.run.resume != "never";
  require<FlagError>(!flags.run.load.empty() || resumes, "--evaluate_only needs weights; name a ",
                     "run directory or a checkpoint by --load=PATH or --resume=PATH");
  for (const Option<TrainFlags>& option : *flags.table) {
    const std::string flag = "--" + option.name;
    require_flag(!option.is_about_training() || !used.given(flag), option.name, used.written(flag),
                 ": an evaluation alone (--evaluate_only) does not train; leave it out");
  }
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
    check_rows();
    check_auto(wishes_auto);
    check_shares();
    check_restores();
    check_memory_saves();
    check_averages();
    check_metrics();
    as_option([&] { samples_of_step(trainer_, flags_.group.processes); });
  }

 private:
  std::string trainer() const { return used_.trainer(flags_.kind); }

  void check_rows() const {
    const FlagsNameOptions flags_name_options;
    const OptionQuestion asking{
        .kind = kind_.facts(),
        .processes = flags_.group.processes,
        .trainer = trainer(),
        .written = [&](auto name) { return used_.written(cat("--", name)); }};
    for (const Option<TrainFlags>& option : *flags_.table)
      if (const std::string why = refusal_of(option, asking); !why.empty())
        throw FlagError(about_option(option.name, asking.written(option.name), why));
  }

  std::string refusal_of(const Option<TrainFlags>& option, const OptionQuestion& asking) const {
    const bool is_given = used_.given("--" + option.name);
    std::string why = is_given && asks(option, flags_) ? option.refusal_of(asking) : "";
    if (why.empty() && is_given && option.refusal_if_given)
      why = option.refusal_if_given(flags_, asking);
    if (why.empty() && option.refusal) why = option.refusal(flags_, asking);
    return why;
  }

  void check_restores() const {
    require_flag(trainer_.on_nonfinite != OnNonfinite::kRestore || !flags_.run.directory.empty(),
                 "on_nonfinite", used_.written("--on_nonfinite"),
                 " takes variables from the newest checkpoint of the run; name a directory for "
                 "them (--run_dir), or use --on_nonfinite=skip");
  }

  void check_memory_saves() const {
    require_flag(trainer_.aggregation.zero_stage == 0 ||
                     flags_.run.schedule.memory_every_steps.value_or(0) == 0,
                 "memory_save_every_steps", used_.written("--memory_save_every_steps"),
                 " keeps whole saves in memory, and with ", used_.written("--zero_stage"),
                 " no process has a whole state; leave one of them out");
  }

  void check_averages() const {
    require_flag(flags_.optimizer.moving_average || !flags_.optimizer.moving_average_warmup,
                 "moving_average_warmup",
                 "--moving_average_warmup is about --moving_average; name that, too");
  }

  // Without evaluations there are no metrics of them.
  void check_metrics() const {
    const auto check = [&](const char* name, const std::string& metric) {
      require_flag(!metric.starts_with("validation_") || !flags_.evaluation.never(), name,
                   used_.written(cat("--", name)), " is a metric of evaluations, which ",
                   used_.written("--eval_every_epochs"),
                   " turns off; leave one of them out, or evaluate by --eval_every_steps=N");
    };
    // A replay stops after its last step.
    if (flags_.early_stop && flags_.inspection.replay.empty())
      check("early_stop", flags_.early_stop->metric);
    check("best_metric", flags_.run.schedule.best.name);
  }

  void check_auto(bool wishes_auto) const {
    // A dry run predicts the time of a step on the machine of --links.
    const bool is_timed = flags_.inspection.dry_run && !aggregation_.choice.any;
    check_auto_flags(flags_.links, aggregation_.choice.any, wishes_auto || is_timed,
                     "--allreduce=auto");
  }

  void check_shares() const {
    // All processes share a batch.
    const std::int64_t towers = towers_of(trainer_, flags_.group.processes);
    const std::int64_t batch = trainer_.batch_size * towers;
    std::vector<std::int64_t> shares;
    as_option([&] { shares = divide_samples(batch, towers, trainer_.batches.tower_weights); });
    for (std::size_t t = 0; t < shares.size(); ++t)
      require_flag(shares[t] > 0, "tower_weights", used_.written("--tower_weights"), " leaves ",
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
  check_evaluate_only(flags, used);
  refuse_unused_files(flags, used);
}

void refuse_conflicts(const TrainFlags& flags, const UsedFlags& used, const TrainerKind& kind,
                      bool wishes_auto) {
  FlagConflicts(flags, used, kind).refuse(wishes_auto);
}

}  // namespace belfry
