#include "belfry/trainers/program/make_report.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/processes.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/model_summary.h"
#include "belfry/trainers/core/option_rows.h"
#include "belfry/trainers/machine/product_peak.h"
#include "belfry/trainers/modes/modes.h"
#include "belfry/trainers/program/memory_report.h"
#include "belfry/trainers/program/program_processes.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

// The options of rows that change results, or whose rows ask for it, as the trainer has them. A
// word that the trainer does not take says nothing.
JsonValue reported_options(TrainFlags flags, const Trainer& trainer) {
  flags.trainer = trainer.built().options();
  JsonValue options = JsonValue::object();
  for (const Option<TrainFlags>& option : *flags.table) {
    if (!option.value || !(option.reported || is_in_fingerprint(option))) continue;
    JsonValue value = option.value(flags);
    const bool is_word = value.kind() == JsonValue::Kind::kString;
    const bool is_taken = option.is_taken_by(trainer.built().kind().facts());
    if (!is_taken && !option.only_of.empty()) continue;
    options.set(option.name, is_taken || !is_word ? std::move(value) : JsonValue());
  }
  return options;
}

Report::Update update_report(const TrainFlags& flags, const Trainer& trainer) {
  const TrainerOptions& made = trainer.built().options();
  if (made.evaluates_only) return {};
  const std::string& allreduce = made.aggregation.allreduce;
  const Optimizer& optimizer = made.first_optimizer();
  JsonValue numbers = JsonValue::object(), losses = JsonValue::array();
  for (const auto& [name, value] : optimizer.options()) numbers.set(name, value);
  for (const LossOptions& loss : made.losses)
    losses.push(JsonValue::object()
                    .set("loss", loss.loss)
                    .set("trained_by", loss.str())
                    .set("learning_rate", loss.optimizer.rate().str()));
  return {.allreduce_requested = trainer.built().choice().empty() ? allreduce : "auto",
          .optimizer = optimizer.kind().empty() ? optimizer.name() : optimizer.kind(),
          .optimizer_options = std::move(numbers),
          .learning_rate = optimizer.rate().str(),
          .weight_decay = optimizer.weight_decay(),
          .groups = text_of_groups(optimizer.groups()),
          .losses = std::move(losses),
          .canonical = is_canonical({flags.kind, allreduce}, trainer.built())};
}

Report::Losses known_losses(const Trainer& trainer) {
  Report::Losses losses{
      .divergence = {.loss_since = trainer.record().watch().losses().not_finite_since()}};
  if (trainer.progress().steps_of_run() > 0 || std::isfinite(trainer.metric("loss")))
    losses.loss = trainer.metric("loss");
  if (trainer.record().has_metric("validation_loss"))
    losses.validation_loss = trainer.metric("validation_loss");
  losses.has_accuracy = trainer.record().has_metric("accuracy");
  if (trainer.record().has_metric("validation_accuracy"))
    losses.validation_accuracy = trainer.metric("validation_accuracy");
  if (losses.loss) losses.metrics = trainer.record().step_metrics();
  const std::vector<NamedValue>& set = trainer.record().set_metrics();
  losses.metrics.insert(losses.metrics.end(), set.begin(), set.end());
  return losses;
}

Report::Progress progress_report(const Trainer& trainer, std::optional<double> peak) {
  Report::Progress progress{
      .steps = trainer.steps(),
      .epochs = trainer.progress().epochs(),
      .speed = {.examples_per_second = trainer.record().examples_per_second()}};
  TrainingSpeed& speed = progress.speed;
  if (const std::int64_t tokens = tokens_of_sample(trainer.built()); tokens > 0)
    speed.tokens_per_second = speed.examples_per_second * static_cast<double>(tokens);
  if (peak) speed.mfu = trainer.record().flops_per_second() / *peak;
  return progress;
}

std::int64_t left_out(const Trainer& trainer) {
  const Dataset* const test = trainer.built().test_data();
  std::int64_t count = trainer.built().train_data().left_out() + (test ? test->left_out() : 0);
  for (const ValidationSet& set : trainer.built().options().validation)
    count += set.data->left_out();
  return count;
}

// Whether all processes end with the same values. All processes call it.
bool equal_in_all(Processes* processes, const std::string& hash) {
  if (!processes) return true;
  const std::vector<std::string> hashes = processes->gather(hash);
  const auto other = std::ranges::find_if(hashes, [&](auto& h) { return h != hashes[0]; });
  if (other == hashes.end()) return true;
  const auto rank = static_cast<int>(other - hashes.begin());
  log_error("rank ", rank, " on ", processes->host(rank),
            " ends with other values of variables than rank 0");
  return false;
}

Report::Variables variables_report(Trainer& trainer) {
  Session& session = trainer.session();
  const std::vector<std::string> differing = differing_replicas(session, trainer.graph());
  if (!differing.empty()) log_error("copies differ from tower 0's variables: ", join(differing));
  const std::string state = state_hash(session, trainer.graph());
  const bool equal = equal_in_all(trainer.built().processes(), state) && differing.empty();
  return {.params_hash = params_hash(session, trainer.graph()),
          .state_hash = state,
          .replicas_equal = equal,
          .replicas_shared = count_shared(session, trainer.graph())};
}

Report::Batches batches_report(const Trainer& trainer) {
  const BuiltTraining& built = trainer.built();
  Report::Batches batches{.global_batch_size = built.batches().global_batch(),
                          .k_dependent_because = {},
                          .device_metrics = {}};
  if (built.options().evaluates_only) return batches;
  batches.k_dependent_because = k_dependence(built);
  batches.device_metrics = metrics_by_devices(built);
  return batches;
}

}  // namespace

Report make_report(const std::string& program, const TrainFlags& flags, const Recipe& recipe,
                   Trainer& trainer, std::optional<double> peak) {
  Report report = report_without_values(program, flags, recipe, trainer, peak);
  report.losses.divergence = find_divergence(trainer.built(), trainer.record());
  report.losses.scale = trainer.built().loss_scale();
  const OnNonfinite policy = trainer.built().options().on_nonfinite;
  if (report.losses.scale || policy == OnNonfinite::kSkip || policy == OnNonfinite::kRestore)
    report.losses.skipped = trainer.record().watch().skipped_steps();
  report.variables = variables_report(trainer);
  return report;
}

Report report_without_values(const std::string& program, const TrainFlags& flags,
                             const Recipe& recipe, Trainer& trainer, std::optional<double> peak) {
  const Session& session = trainer.session();
  const TrainerOptions& made = trainer.built().options();
  return {.program = program,
          .flags = values_of_own(recipe.flags),
          .options = reported_options(flags, trainer),
          .devices = devices_of_all(made),
          .hosts = hosts_of(made.session.processes.get()),
          .threads = session.threads(),
          .peak_bytes = session.peak_bytes(),
          .update = update_report(flags, trainer),
          .batches = batches_report(trainer),
          .left_out = left_out(trainer),
          .progress = progress_report(trainer, peak),
          .losses = known_losses(trainer)};
}

double measured_peak(const TrainFlags& flags) {
  const TrainerOptions& options = flags.trainer;
  SessionOptions session{.logical_gpus = options.session.logical_gpus,
                         .deterministic = options.session.deterministic,
                         .threads = options.session.threads};
  return measure_peak(
      {.devices = options.devices, .session = session, .precision = options.precision});
}

ProcessMemory memory_use(Trainer& trainer, std::int64_t rss_before_plan, int copies) {
  return {.planned_bytes = planned_bytes(trainer.session().memory_report(),
                                         held_memory(trainer.graph(), copies)),
          .rss_before_plan_bytes = rss_before_plan,
          .peak_rss_bytes = peak_resident_bytes()};
}

void print_header(Console& console, const std::string& program, const TrainFlags& flags,
                  Trainer& trainer, const Dataset& train, const Dataset* test) {
  if (!trainer.built().choice().empty()) console.line(trainer.built().choice());
  const BatchPlan& plan = trainer.built().batches();
  const TrainerOptions& made = trainer.built().options();
  const bool trains = !made.evaluates_only;
  console.line(cat(program, ": ", trains ? flags.kind : "evaluation alone",
                   flags.trainer.aggregation.allreduce.empty()
                       ? ""
                       : cat(", ", trainer.built().options().aggregation.allreduce),
                   flags.async().empty() ? "" : cat(", ", flags.async()), " on ",
                   short_names(trains ? flags.trainer.devices : made.devices), ", ",
                   trainer.session().threads(), " threads, seed ", flags.trainer.seed,
                   flags.trainer.precision == Precision::kF32
                       ? ""
                       : cat(", ", name_of(flags.trainer.precision))));
  if (trains) console.line(cat("data: ", train.describe()));
  if (test) console.line(cat("test: ", test->describe()));
  for (const ValidationSet& set : trainer.built().options().validation)
    console.line(cat("test (", set.name, "): ", set.data->describe()));
  if (!trains) return console.line(cat("batch: ", plan.global_batch(), " in all"));
  const BatchForm& form = plan.forms().front();
  console.line(cat("batch: ", form.str(), " per device, ", form.total(), " in all; one step takes ",
                   plan.batches_per_step() == 1
                       ? "one batch"
                       : cat(plan.batches_per_step(), " batches, one after another,"),
                   " on every device; ", plan.steps_per_epoch(), " steps per epoch"));
  const BatchForm& last = plan.forms()[plan.form_of(plan.batches_per_epoch() - 1)];
  if (last.samples != form.samples)
    console.line(cat("the last batch of an epoch has ", last.total(),
                     " examples: ", join(last.samples, " + ")));
  if (plan.dropped_per_epoch() > 0)
    console.line(cat("each epoch leaves out ", plan.dropped_per_epoch(),
                     " examples, which do not fill a ",
                     plan.batches_per_step() == 1 ? "batch" : "step"));
  if (const std::string unlike = unlike_one_device(trainer.built()); !unlike.empty())
    console.line(cat("note: ", unlike));
}

void warn_of_no_trace(const TrainFlags& flags, const Trainer& trainer) {
  log_warning("--trace_file=", flags.files.trace_file, " was not written: this run ended after ",
              trainer.progress().steps_of_run(),
              " steps, before one to trace; train longer by --epochs or --max_steps");
}

void warn_of_no_traces(const StepRange& asked, const Trainer& trainer) {
  const std::int64_t before = trainer.steps() - trainer.progress().steps_of_run();
  if (asked.first <= trainer.steps() && asked.last > before) return;
  log_warning("--trace_steps=", asked.first, "-", asked.last, " traced nothing: this run made ",
              trainer.progress().steps_of_run() == 0
                  ? "no step"
                  : cat("steps ", before + 1, " to ", trainer.steps()));
}

}  // namespace belfry
