// How far a training run has come: its steps and epochs, of all runs that it resumes.
#pragma once
#include <cstdint>
#include <string>

#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/util/learning_rate.h"

namespace belfry {

class BuiltTraining;

// A checkpoint keeps it in addition to the variables.
struct TrainingPosition {
  std::int64_t steps = 0;    // updates made
  std::int64_t epoch = 0;    // complete epochs
  std::int64_t samples = 0;  // that the current epoch has taken
  std::uint64_t seed = 1;    // for the order of the data
  bool operator==(const TrainingPosition&) const = default;
};

class TrainingProgress {
 public:
  explicit TrainingProgress(const BuiltTraining& built) : built_(built) {}

  // Resumes where another run stopped; its epochs and steps count as this run's. With the same seed
  // and global batch the order of the data is that of a run that never stopped; with another global
  // batch, the epoch resumes at the last multiple of that batch. Call it before Trainer::train().
  // Throws InvalidArgument for negative numbers, as check_position() does.
  void resume(const TrainingPosition& position);
  static void check_position(const TrainingPosition& position);
  TrainingPosition position() const;

  // The number of complete steps, with those of the runs that this one resumes.
  std::int64_t steps() const { return steps_; }
  // Steps of this run alone, without those before resume().
  std::int64_t steps_of_run() const { return steps_ - first_step_; }
  // The number of steps at the end of the training, according to the options.
  std::int64_t total_steps() const;
  // The number of complete epochs.
  int epochs() const { return epochs_; }
  // The number of steps left in the current epoch. If it is 1, the next step ends the epoch.
  std::int64_t steps_left_of_epoch() const;
  // The position of the next step.
  StepInfo info() const;
  // The number of samples of the next step, and its first batch.
  std::int64_t samples_of_step() const;
  BatchPlan::Position next_batch() const;

  // The learning rate as text, for comparisons with other runs: LearningRate::str(run).
  std::string learning_rate() const;
  // Whether the steps so far would have had other rates in a run of `total` steps.
  bool rates_differ(std::int64_t total) const;

  // For the loop. Time counts from the first step of this run.
  void begin();
  void end_step() { ++steps_, ++epoch_step_; }
  void end_epoch() { ++epochs_, epoch_step_ = 0; }
  double seconds() const;  // since begin()

 private:
  const BuiltTraining& built_;
  std::int64_t steps_ = 0, first_step_ = 0;  // in all runs, and in those before this one
  std::int64_t epoch_step_ = 0;              // steps of the current epoch
  int epochs_ = 0;
  double began_ = 0;  // by seconds_now()
};

}  // namespace belfry
