#include "belfry/trainers/runs/stats_log.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {
namespace {

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";  // as in other JSON files
  std::array<char, 40> text;
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

void add(std::string& line, std::string_view name, double value) {
  line += cat(",", JsonValue(name).str(), ":", number_text(value));
}

std::string line_of(std::int64_t steps, int epoch) {
  return cat("{\"step\":", steps, ",\"epoch\":", epoch);
}

}  // namespace

void StatsLog::after_step(Trainer& trainer, const StepInfo& info) {
  std::string line = line_of(info.step + 1, info.epoch + 1);
  for (const NamedValue& metric : trainer.record().step_metrics())
    add(line, metric.name, metric.value);
  for (const NamedValue& norm : trainer.record().gradient_norms()) add(line, norm.name, norm.value);
  for (const NamedValue& rate : trainer.record().learning_rates()) add(line, rate.name, rate.value);
  add(line, "examples_per_second", trainer.record().step_examples_per_second());
  add(line, "seconds", info.seconds);
  if (memory_)
    for (const NamedValue& value : memory_->values()) add(line, value.name, value.value);
  file_.add(line + "}\n");
}

void StatsLog::after_metrics(Trainer&, const StepInfo& info,
                             const std::vector<NamedValue>& metrics) {
  std::string line = line_of(info.step, info.epoch + 1);
  for (const NamedValue& metric : metrics) add(line, metric.name, metric.value);
  file_.add(line + "}\n");
}

}  // namespace belfry
