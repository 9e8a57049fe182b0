#include "belfry/trainers/runs/metrics_file.h"

#include <cmath>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/clock.h"

namespace belfry {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result;
}

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return cat(value);
}

// Families, each with its description, type and lines.
class Families {
 public:
  explicit Families(const MetricLabels& labels) : labels_(labels) {}

  void begin(const std::string& name, const char* type, const char* help) {
    name_ = name;
    text_ += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void add(double value) { text_ += prometheus_line(name_, labels_, value); }
  void add(const char* label, std::string_view text, double value) {
    MetricLabels all = labels_;
    all.emplace_back(label, text);
    text_ += prometheus_line(name_, all, value);
  }
  void add_one(const std::string& name, const char* type, const char* help, double value) {
    begin(name, type, help);
    add(value);
  }
  const std::string& text() const { return text_; }

 private:
  const MetricLabels& labels_;
  std::string name_, text_;
};

double as_number(std::int64_t count) { return static_cast<double>(count); }

}  // namespace

std::string prometheus_line(const std::string& name, const MetricLabels& labels, double value) {
  std::vector<std::string> texts;
  for (const auto& [label, text] : labels) texts.push_back(cat(label, "=\"", escaped(text), "\""));
  return cat(name, texts.empty() ? "" : cat("{", join(texts, ","), "}"), " ",
             prometheus_number(value), "\n");
}

std::string prometheus_text(Trainer& trainer, std::int64_t steps, const MetricLabels& labels,
                            bool running) {
  const TrainingRecord& record = trainer.record();
  Families all(labels);
  all.add_one("belfry_running", "gauge", "1 while the training runs, 0 once it has ended.",
              running ? 1 : 0);
  all.add_one("belfry_steps_total", "counter", "Complete steps.", as_number(steps));
  all.add_one("belfry_planned_steps", "gauge", "Steps at the end of the training.",
              as_number(trainer.progress().total_steps()));
  all.add_one("belfry_epochs_total", "counter", "Complete epochs.", trainer.progress().epochs());
  all.add_one("belfry_skipped_steps_total", "counter",
              "Steps that were skipped as their loss or gradients were not finite.",
              as_number(record.watch().skipped_steps()));
  all.add_one("belfry_examples_per_second", "gauge", "Training samples per second.",
              record.examples_per_second());
  all.begin("belfry_metric", "gauge", "Loss and metrics of the last step and evaluation.");
  for (const NamedValue& metric : record.step_metrics()) all.add("name", metric.name, metric.value);
  for (const NamedValue& metric : record.set_metrics()) all.add("name", metric.name, metric.value);
  all.begin("belfry_learning_rate", "gauge", "Learning rates of the last step.");
  for (const NamedValue& rate : record.learning_rates()) all.add("name", rate.name, rate.value);
  all.add_one("belfry_host_bytes", "gauge", "Memory of the process.", as_number(resident_bytes()));
  all.begin("belfry_device_bytes", "gauge", "Memory of variables and plans on a device.");
  for (const DeviceUse& use : trainer.session().device_use())
    all.add("device", use.device.short_str(), as_number(use.bytes));
  return all.text();
}

void MetricsFile::after_step(Trainer& trainer, const StepInfo& info) {
  write_if_due(trainer, info.step + 1);
}

void MetricsFile::after_metrics(Trainer& trainer, const StepInfo& info,
                                const std::vector<NamedValue>&) {
  write_if_due(trainer, info.step);
}

void MetricsFile::after_training(Trainer& trainer, const StepInfo& info) {
  write(trainer, info.step, false);
}

void MetricsFile::on_error(Trainer& trainer, const std::exception&) {
  write(trainer, trainer.steps(), false);
}

void MetricsFile::write_if_due(Trainer& trainer, std::int64_t steps) {
  if (seconds_now() - written_ >= kSeconds) write(trainer, steps, true);
}

void MetricsFile::write(Trainer& trainer, std::int64_t steps, bool running) {
  file_.write(prometheus_text(trainer, steps, labels_, running));
  written_ = seconds_now();
}

}  // namespace belfry
