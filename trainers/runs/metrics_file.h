// metrics_file: how far a training is, in the text form of Prometheus, as its node exporter reads
// it from files (its flag collector.textfile.directory; the name must end with .prom).
//   # TYPE belfry_steps_total counter
//   belfry_steps_total{program="mnist",run="/runs/first"} 120
//   belfry_metric{program="mnist",run="/runs/first",name="validation_accuracy"} 0.96875
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// The state of a training after `steps` as the text of such a file. `labels` are those of every
// line.
std::string prometheus_text(Trainer& trainer, std::int64_t steps, const MetricLabels& labels,
                            bool running);
// name{a="x",b="y"} value
std::string prometheus_line(const std::string& name, const MetricLabels& labels, double value);

// Replaces the file after a step or an evaluation, but at most once in kSeconds, and at the end.
class MetricsFile final : public Callback {
 public:
  static constexpr double kSeconds = 5;

  // Borrows `file`.
  MetricsFile(OutputFile& file, MetricLabels labels) : file_(file), labels_(std::move(labels)) {}

  CallbackPhase phase() const override { return CallbackPhase::kRecord; }
  void setup(Trainer& trainer) override { write(trainer, trainer.steps(), true); }
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_metrics(Trainer& trainer, const StepInfo& info,
                     const std::vector<NamedValue>& metrics) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  void on_error(Trainer& trainer, const std::exception& error) override;

 private:
  void write_if_due(Trainer& trainer, std::int64_t steps);
  void write(Trainer& trainer, std::int64_t steps, bool running);

  OutputFile& file_;
  const MetricLabels labels_;
  double written_ = 0;  // by seconds_now()
};

}  // namespace belfry
