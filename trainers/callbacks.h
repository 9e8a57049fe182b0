// What happens around the steps of a training run.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "belfry/trainers/console.h"
#include "belfry/trainers/rate.h"

namespace belfry {

class Trainer;

// Called on the thread of Trainer::train(). An exception ends the training and leaves train(). At
// each point callbacks are called in one fixed order: Progress, Evaluation, then the recipe's own
// in the order of its list, then SaveCheckpoint.
struct Callback {
  virtual ~Callback() = default;
  // Graph and session exist; before the first step.
  virtual void setup(Trainer&) {}
  // Around step `info.step`, the first being 0; `info.seconds` is then and after it.
  virtual void before_step(Trainer&, const StepInfo&) {}
  virtual void after_step(Trainer&, const StepInfo&) {}
  // After the last step of epoch `info.epoch`; `info.step` steps are complete.
  virtual void after_epoch(Trainer&, const StepInfo&) {}
  // Once, after the last of the above.
  virtual void after_training(Trainer&, const StepInfo&) {}
};

// Shows steps, loss, metrics and speed: on a terminal one line that updates itself up to ten times
// a second, elsewhere a plain line now and then.
class Progress final : public Callback {
 public:
  explicit Progress(Console& console) : console_(console) {}
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  void show(Trainer& trainer, const StepInfo& info);

  Console& console_;
  std::int64_t total_steps_ = 0;
  double shown_at_ = 0;          // seconds since training began
  bool ran_ = false;             // a step
  double began_ = 0;             // the step
  std::int64_t rate_steps_ = 0;  // since the last line
  double rate_seconds_ = 0;      // in them, so that nothing between steps counts
};

class Evaluator;

// Evaluates the test data after each epoch, and after a last epoch that was cut short: sets the
// metrics "test_loss" and "test_<metric>" of the trainer and prints a line. Without test data it
// does nothing.
class Evaluation final : public Callback {
 public:
  explicit Evaluation(Console& console);
  ~Evaluation() override;
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;

 private:
  void evaluate(Trainer& trainer, const StepInfo& info);

  Console& console_;
  std::unique_ptr<Evaluator> evaluator_;
  std::int64_t evaluated_at_ = 0;  // steps
};

}  // namespace belfry
