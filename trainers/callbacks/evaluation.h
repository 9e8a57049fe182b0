// Tests the model, every so many epochs or steps.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

class Evaluator;

// When the data are evaluated, and how many of them.
struct EvaluationOptions {
  std::int64_t every_epochs = 1;  // and after the last epoch; 0: not after epochs
  std::int64_t every_steps = 0;   // 0: not after steps
  std::int64_t batches = 0;       // at most so many global batches of each data set; 0: all of it

  bool never() const { return every_epochs == 0 && every_steps == 0; }
};

// Evaluates the test data and other validation sets when options say so, and at the end of the
// training, unless a signal has ended it. It sets the metrics "validation_loss" and
// "validation_<metric>" of the trainer, or "validation_<set>_<metric>", and prints a line for each
// set. Meanwhile it shows how many samples have been tested, whenever that is due. A resumed run
// first does the evaluation that was due where it resumes. An evaluation after a step comes after
// the save of that step, so that this may be the best checkpoint. Without data to evaluate it does
// nothing. An evaluation that is interrupted between two batches does not count.
class Evaluation final : public Callback {
 public:
  // `look` is called before each batch, and may call TrainingLoop::interrupt(). It may be empty.
  // Throws InvalidArgument for negative options.
  explicit Evaluation(Console& console, std::function<void(Trainer&)> look = {},
                      EvaluationOptions options = {});
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
  struct Set {
    std::string name;  // "" for the test data
    std::unique_ptr<Evaluator> evaluator;

    std::string name_of(std::string_view metric) const;  // "validation_noisy_loss"
  };

  void add_set(Trainer& trainer, const std::string& name, const Dataset& data);
  void check_names(std::span<const std::string> metrics) const;
  bool is_due(std::int64_t steps, std::int64_t ended_epochs) const;
  void evaluate(Trainer& trainer, const StepInfo& info);
  bool evaluate(Trainer& trainer, const StepInfo& info, Set& set);
  bool goes_on(Trainer& trainer) const;

  Console& console_;
  std::function<void(Trainer&)> look_;
  EvaluationOptions options_;
  std::vector<Set> sets_;
  std::int64_t evaluated_at_ = 0;  // steps of all runs
  bool evaluated_ = false;         // by this run
  bool knows_ = false;             // evaluated_at_ comes from the run that this one resumes
  bool is_due_ = false;            // due before the first step of this run
};

}  // namespace belfry
