// stats.jsonl of a run directory: the course of the training, for programs.
//   {"step":12,"epoch":1,"loss":0.25,"accuracy":0.9,"learning_rate":0.001,
//    "examples_per_second":5123.4,"seconds":1.25}
//   {"step":40,"epoch":1,"validation_loss":0.2,"validation_accuracy":0.93}
// With log_gradient_norms, lines of steps have "gradient_norm" and "gradient_norm/fc0/W", too.
// Several losses have rates such as "learning_rate/gen" (TrainingRecord::learning_rates()).
// There is a line for each step, and one after each evaluation and wherever a callback has set
// metrics. Lines of some steps have the values of a MemoryWatch, too. Steps and epochs count
// from 1. Numbers have 17 significant digits; one that is not finite is "nan", "inf" or "-inf".
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/line_file.h"
#include "belfry/trainers/runs/memory_watch.h"

namespace belfry {

// Writes each line when its step is complete. It is called before callbacks that save, so that the
// checkpoint of a step records where the line of this step ends.
class StatsLog final : public Callback {
 public:
  // Asks `memory`, which may be null, for its values after each step.
  StatsLog(FileSystem& files, std::string path, OnSaveError on_error = OnSaveError::kRetry,
           std::shared_ptr<const MemoryWatch> memory = {})
      : file_(files, std::move(path), on_error), memory_(std::move(memory)) {}

  LineFile& file() { return file_; }

  CallbackPhase phase() const override { return CallbackPhase::kRecord; }
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void after_metrics(Trainer& trainer, const StepInfo& info,
                     const std::vector<NamedValue>& metrics) override;

 private:
  LineFile file_;
  std::shared_ptr<const MemoryWatch> memory_;
};

}  // namespace belfry
