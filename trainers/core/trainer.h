// Trainers: a model, data and an optimizer, made into one graph, one session and a loop of steps.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/core/training_loop.h"
#include "belfry/trainers/core/training_progress.h"
#include "belfry/trainers/core/training_record.h"

namespace belfry {

// Its parts: what is built, how far the run has come, its record, and the loop.
class Trainer {
 public:
  // Builds the graph and compiles the training step, as the kind says (find_trainer()). Borrows the
  // kind and the data, which must outlive the trainer; `test` may be null. Throws InvalidArgument
  // for anything that does not fit: options that contradict each other, towers that disagree, a
  // batch larger than the data, or a model for other fields. It also throws for test data with
  // other fields than the training data or without samples, and for impossible sizes and shapes. It
  // also throws for options without model or optimizer, or with a null callback.
  Trainer(const TrainerKind& kind, TrainerOptions options, const Dataset& train,
          const Dataset* test = nullptr)
      : built_(kind, std::move(options), train, test) {}
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains to the end, or until stop(). Call it once. Throws what a kernel, the data or a callback
  // threw, after Callback::on_error() of all callbacks. origin_of() has its origin. An exception
  // that is no std::exception becomes an Error (rethrow_from()). Throws Diverged after a step whose
  // loss is not finite, unless options ask to continue; all processes do so after the same step.
  void train() { loop_.run(); }
  // For callbacks. Ends the training after the running step, or in before_step() before the step
  // runs. Several processes all end after the same step, whichever of them call it: at once if
  // called in setup(), or at the end of an epoch or evaluation; otherwise after the next step.
  void stop() { loop_.stop(); }
  // The number of complete steps, with those of the runs that this one resumes.
  std::int64_t steps() const { return progress_.steps(); }
  // "loss", or a metric of the tower function or of an evaluation (TrainingRecord::metric()).
  double metric(std::string_view name) const { return record_.metric(name); }
  Graph& graph() { return built_.graph(); }
  const Graph& graph() const { return built_.graph(); }
  Session& session() { return built_.session(); }

  BuiltTraining& built() { return built_; }
  const BuiltTraining& built() const { return built_; }
  TrainingProgress& progress() { return progress_; }
  const TrainingProgress& progress() const { return progress_; }
  TrainingRecord& record() { return record_; }
  const TrainingRecord& record() const { return record_; }
  TrainingLoop& loop() { return loop_; }
  const TrainingLoop& loop() const { return loop_; }

 private:
  BuiltTraining built_;
  TrainingProgress progress_{built_};
  TrainingRecord record_{built_, progress_};
  TrainingLoop loop_{*this, built_, progress_, record_};
};

}  // namespace belfry
