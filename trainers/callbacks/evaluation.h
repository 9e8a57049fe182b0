// Tests the model epoch by epoch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

class Evaluator;

// Evaluates the test data after each epoch, and after a last epoch that was cut short, unless a
// signal cut it. It sets the metrics "validation_loss" and "validation_<metric>" of the trainer and
// prints a line. Meanwhile it shows how many samples have been tested, whenever that is due. A run
// that resumes from the end of an epoch first does the evaluation that was due there. Without test
// data it does nothing. An evaluation that is interrupted between two batches does not count.
class Evaluation final : public Callback {
 public:
  // `look` is called before each batch, and may call TrainingLoop::interrupt(). It may be empty.
  explicit Evaluation(Console& console, std::function<void(Trainer&)> look = {});
  ~Evaluation() override;
  CallbackPhase phase() const override { return CallbackPhase::kEvaluate; }
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  std::string name() const override { return "evaluation"; }
  JsonValue state() const override;
  void restore(const JsonValue& state) override;

 private:
  void evaluate(Trainer& trainer, const StepInfo& info);
  bool goes_on(Trainer& trainer) const;

  Console& console_;
  std::function<void(Trainer&)> look_;
  std::unique_ptr<Evaluator> evaluator_;
  std::int64_t evaluated_at_ = 0;  // steps of all runs
  bool evaluated_ = false;         // by this run
  bool knows_ = false;             // evaluated_at_ comes from the run that this one resumes
  bool is_due_ = false;            // due before the first step of this run
};

}  // namespace belfry
