// Ends a training that gets no better.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

struct EarlyStopOptions {
  std::string metric = "validation_loss";
  bool highest = false;  // the highest value is best; else the lowest
  int patience = 1;      // evaluations without a better one that end the training
  // A value is better if it lies beyond the best one so far by more than this.
  double least_improvement = 0;

  std::string str() const;  // as parse_early_stop() reads it
};

// Reads "METRIC:min:PATIENCE" or "METRIC:max:PATIENCE", with ":LEAST" or without. Throws
// InvalidArgument naming the part that is wrong.
EarlyStopOptions parse_early_stop(std::string_view text);

// Checks a metric of training steps after each epoch and each evaluation: its value in the last
// step. Checks a metric that an evaluation or a callback sets whenever it is set. NaN is never
// better. A line says why the training ends.
//
// Its state in a checkpoint is the best value, its step, how many evaluations have followed, and
// the step of the last one. An evaluation that a resumed run repeats does not count twice. If early
// stop had ended a run, the resumed run ends before its first step.
class EarlyStop final : public Callback {
 public:
  // Throws InvalidArgument for a patience below 1 and a negative least improvement.
  EarlyStop(EarlyStopOptions options, Console& console);

  CallbackPhase phase() const override { return CallbackPhase::kJudge; }
  // Throws OptionMistake for a metric that neither the model nor the evaluation has, and that no
  // callback sets (Callback::metrics()).
  void check(Trainer& trainer) const override;
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_evaluation(Trainer& trainer, const StepInfo& info) override;
  void after_metrics(Trainer& trainer, const StepInfo& info,
                     const std::vector<NamedValue>& metrics) override;

  std::string name() const override { return "early_stop/" + options_.metric; }
  JsonValue state() const override;
  void restore(const JsonValue& state) override;

 private:
  bool of_evaluation() const;
  void look(Trainer& trainer, std::int64_t step);
  bool is_better(double value) const;
  void stop(Trainer& trainer);

  EarlyStopOptions options_;
  Console& console_;
  std::optional<double> best_;
  std::int64_t best_step_ = 0, seen_step_ = 0;
  int worse_ = 0;  // evaluations since the best
};

}  // namespace belfry
