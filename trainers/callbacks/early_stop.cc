#include "belfry/trainers/callbacks/early_stop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/option_error.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

constexpr std::string_view kValidation = "validation_";

// The metrics of the model, of the evaluation and of callbacks.
std::vector<std::string> known_metrics(const Trainer& trainer) {
  std::vector<std::string> names;
  if (trainer.built().evaluates())
    for (const NamedValue& metric : trainer.record().step_metrics()) names.push_back(metric.name);
  for (std::string& name : trainer.record().expected_metrics()) names.push_back(std::move(name));
  return names;
}

std::int64_t count_in(const JsonValue& state, const char* name) {
  const std::int64_t value = state.at(name).integer();
  require(value >= 0, state.at(name).where(), name, " is ", value, "; it is at least 0");
  return value;
}

}  // namespace

std::string EarlyStopOptions::str() const {
  return cat(metric, ":", highest ? "max" : "min", ":", patience,
             least_improvement > 0 ? cat(":", least_improvement) : "");
}

EarlyStopOptions parse_early_stop(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  require(parts.size() == 3 || parts.size() == 4, "'", shown(text),
          "' is not METRIC:min|max:PATIENCE such as validation_loss:min:3; the least improvement "
          "may stand behind another colon");
  require(!parts[0].empty(), "the name of the metric is empty; e.g. validation_loss");
  require(parts[1] == "min" || parts[1] == "max", "'", shown(parts[1]), "' is neither min nor max");
  EarlyStopOptions options{.metric = std::string(parts[0]), .highest = parts[1] == "max"};
  const WrittenFlag patience{
      {}, std::string(parts[2]), cat("the patience '", shown(parts[2]), "'")};
  read_integer(patience, 1, std::numeric_limits<int>::max(), options.patience);
  if (parts.size() == 3) return options;
  const WrittenFlag least{{}, std::string(parts[3]), cat("the least improvement '", parts[3], "'")};
  read_number(
      least, "a finite number >= 0", [](double x) { return x >= 0; }, options.least_improvement);
  return options;
}

EarlyStop::EarlyStop(EarlyStopOptions options, Console& console)
    : options_(std::move(options)), console_(console) {
  require(options_.patience >= 1, "a patience of ", options_.patience,
          " evaluations; it is at least 1");
  require(std::isfinite(options_.least_improvement) && options_.least_improvement >= 0,
          "a least improvement of ", options_.least_improvement, "; it is finite and not negative");
}

void EarlyStop::check(Trainer& trainer) const {
  const std::vector<std::string> known = known_metrics(trainer);
  const bool exists = std::ranges::find(known, options_.metric) != known.end();
  if (!exists && !trainer.record().has_metric(options_.metric)) {
    const bool lacks_data = of_evaluation() && !trainer.built().evaluates();
    refuse_option<OptionMistake>(
        "early_stop", "=", options_, ": there is no metric '", options_.metric, "'",
        lacks_data ? ", as there are no data to evaluate" : did_you_mean(options_.metric, known),
        " (there are ", join(known), ")");
  }
}

void EarlyStop::setup(Trainer& trainer) {
  if (worse_ >= options_.patience) stop(trainer);
}

bool EarlyStop::of_evaluation() const { return options_.metric.starts_with(kValidation); }

void EarlyStop::after_epoch(Trainer& trainer, const StepInfo& info) {
  const std::vector<NamedValue>& metrics = trainer.record().step_metrics();
  if (std::ranges::find(metrics, options_.metric, &NamedValue::name) != metrics.end())
    look(trainer, info.step);
}

void EarlyStop::after_evaluation(Trainer& trainer, const StepInfo& info) {
  after_epoch(trainer, info);
}

void EarlyStop::after_metrics(Trainer& trainer, const StepInfo& info,
                              const std::vector<NamedValue>& metrics) {
  if (std::ranges::find(metrics, options_.metric, &NamedValue::name) != metrics.end())
    look(trainer, info.step);
}

void EarlyStop::look(Trainer& trainer, std::int64_t step) {
  if (step <= seen_step_) return;
  seen_step_ = step;
  if (const double value = trainer.metric(options_.metric); is_better(value)) {
    best_ = value;
    best_step_ = step;
    worse_ = 0;
  } else if (++worse_ >= options_.patience) {
    stop(trainer);
  }
}

bool EarlyStop::is_better(double value) const {
  if (!std::isfinite(value)) return false;
  if (!best_) return true;
  return options_.highest ? value > *best_ + options_.least_improvement
                          : value < *best_ - options_.least_improvement;
}

void EarlyStop::stop(Trainer& trainer) {
  const char* const side = options_.highest ? "above " : "below ";
  const std::string by =
      options_.least_improvement > 0 ? cat(" by more than ", options_.least_improvement) : "";
  const std::string best = best_ ? cat("was not ", side, significant(*best_), by,
                                       ", which it had after step ", best_step_, ", ")
                                 : "was not finite ";
  console_.line(cat("early stop: ", options_.metric, " ", best, "in ", worse_,
                    worse_ == 1 ? " evaluation" : " evaluations", "; training ends after step ",
                    seen_step_));
  trainer.stop();
}

JsonValue EarlyStop::state() const {
  return JsonValue::object()
      .set("best", best_ ? JsonValue(*best_) : JsonValue())
      .set("best_step", best_step_)
      .set("worse", worse_)
      .set("seen_step", seen_step_);
}

void EarlyStop::restore(const JsonValue& state) {
  const JsonValue& best = state.at("best");
  const std::optional<double> value =
      best.kind() == JsonValue::Kind::kNull ? std::nullopt : std::optional(best.number());
  const std::int64_t best_step = count_in(state, "best_step"), worse = count_in(state, "worse"),
                     seen_step = count_in(state, "seen_step");
  best_ = value;
  best_step_ = best_step;
  worse_ = static_cast<int>(std::min<std::int64_t>(worse, std::numeric_limits<int>::max()));
  seen_step_ = seen_step;
}

}  // namespace belfry
