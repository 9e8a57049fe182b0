#include "belfry/trainers/callbacks/evaluation.h"

#include <set>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/callbacks/evaluator.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {

Evaluation::Evaluation(Console& console, std::function<void(Trainer&)> look,
                       EvaluationOptions options)
    : console_(console), look_(std::move(look)), options_(options) {
  require(options.every_epochs >= 0 && options.every_steps >= 0 && options.batches >= 0,
          "an evaluation every ", options.every_epochs, " epochs or ", options.every_steps,
          " steps, of ", options.batches, " batches, cannot be; these are numbers from 0 on");
}

Evaluation::~Evaluation() = default;

void Evaluation::add_set(Trainer& trainer, const std::string& name, const Dataset& data) {
  const BuiltTraining& built = trainer.built();
  sets_.push_back({name, std::make_unique<Evaluator>(
                             trainer.session(), built.nodes().predictors, data,
                             Evaluator::Options{.global_batch = built.batches().global_batch(),
                                                .shards = built.options().shards,
                                                .towers = built.batches().towers(),
                                                .processes = built.processes(),
                                                .data_workers = built.options().data_workers,
                                                .batches = options_.batches})});
}

std::string Evaluation::Set::name_of(std::string_view metric) const {
  return cat("validation_", name, name.empty() ? "" : "_", metric);
}

// A set 'a' with a metric 'b', and another with the metric 'a_b', would have values of one name.
void Evaluation::check_names(std::span<const std::string> metrics) const {
  std::set<std::string> names;
  for (const Set& set : sets_)
    for (const std::string& metric : metrics)
      require(names.insert(set.name_of(metric)).second, "the metric '", metric,
              "' of the validation set '", set.name, "' would be called ", set.name_of(metric),
              ", as another one is; rename the set or the metric");
}

void Evaluation::setup(Trainer& trainer) {
  const BuiltTraining& built = trainer.built();
  if (options_.never()) return;
  if (built.test_data()) add_set(trainer, "", *built.test_data());
  for (const ValidationSet& set : built.options().validation) add_set(trainer, set.name, *set.data);
  check_names(MetricNumbers(built.nodes().towers[0]).value_names());
  const TrainingPosition position = trainer.progress().position();
  is_due_ = !sets_.empty() && knows_ && position.steps > 0 && evaluated_at_ != position.steps &&
            is_due(position.steps, position.samples == 0 ? position.epoch : 0);
}

// After so many steps, which end so many epochs; 0: none ends there.
bool Evaluation::is_due(std::int64_t steps, std::int64_t ended_epochs) const {
  return (options_.every_steps > 0 && steps % options_.every_steps == 0) ||
         (options_.every_epochs > 0 && ended_epochs > 0 &&
          ended_epochs % options_.every_epochs == 0);
}

JsonValue Evaluation::state() const {
  return JsonValue::object().set("step", evaluated_at_).set("batches", options_.batches);
}

void Evaluation::restore(const JsonValue& state) {
  evaluated_at_ = state.at("step").integer();
  const JsonValue* const batches = state.find("batches");
  if (const std::int64_t before = batches ? batches->integer() : options_.batches;
      before != options_.batches)
    log_warning(option_name("eval_batches"), " was ", before, " and is now ", options_.batches,
                " (0: all), so evaluations before and from now on are of different samples");
  knows_ = true;
}

// The step before is complete, and saved if that was due.
void Evaluation::before_step(Trainer& trainer, const StepInfo& info) {
  const bool is_due_now = std::exchange(is_due_, false) || (info.step > 0 && is_due(info.step, 0));
  if (!is_due_now || evaluated_at_ == info.step || trainer.loop().interrupted()) return;
  const double begin = seconds_now();
  StepInfo last = info;
  if (trainer.progress().position().samples == 0) --last.epoch;
  evaluate(trainer, last);
  trainer.record().leave_out(seconds_now() - begin);
}

void Evaluation::after_epoch(Trainer& trainer, const StepInfo& info) {
  if (evaluated_ && info.step == evaluated_at_) return;
  if (is_due(info.step, info.epoch + 1) && !trainer.loop().interrupted()) evaluate(trainer, info);
}

void Evaluation::after_training(Trainer& trainer, const StepInfo& info) {
  if ((evaluated_ && info.step == evaluated_at_) || trainer.loop().interrupted()) return;
  // If nothing was left to train, the epoch before ended here.
  StepInfo last = info;
  if (trainer.progress().position().samples == 0 && last.epoch > 0) --last.epoch;
  evaluate(trainer, last);
}

bool Evaluation::goes_on(Trainer& trainer) const {
  if (look_) look_(trainer);
  return !trainer.loop().interrupted();
}

void Evaluation::evaluate(Trainer& trainer, const StepInfo& info) {
  if (options_.never()) return;
  for (Set& set : sets_)
    if (!evaluate(trainer, info, set)) return;
  evaluated_at_ = info.step;
  evaluated_ = true;
  if (!sets_.empty()) trainer.loop().evaluated(info);
}

// Whether it was not interrupted.
bool Evaluation::evaluate(Trainer& trainer, const StepInfo& info, Set& set) {
  const std::string when = cat("epoch ", info.epoch + 1, ", step ", info.step);
  const std::string what = set.name.empty() ? "" : cat(" (", set.name, ")");
  const std::int64_t samples = set.evaluator->samples();
  if (!goes_on(trainer)) return false;
  const std::vector<NamedValue> values = set.evaluator->run([&](std::int64_t tested) {
    show_if_due(&console_, when, ": tested ", tested, "/", samples, what);
    return tested >= samples || goes_on(trainer);
  });
  if (values.empty()) return false;
  std::string line = cat(when, ": test", what);
  for (const NamedValue& value : values) {
    trainer.record().set_metric(set.name_of(value.name), value.value);
    line += cat("  ", value.name, " ", significant(value.value));
  }
  console_.line(line);
  trainer.record().watch().note_test_loss(values[0].value, set.evaluator->not_finite_input());
  return true;
}

}  // namespace belfry
