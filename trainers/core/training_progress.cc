#include "belfry/trainers/core/training_progress.h"

#include <algorithm>
#include <limits>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/core/built_training.h"
#include "belfry/trainers/util/clock.h"

namespace belfry {

void TrainingProgress::check_position(const TrainingPosition& position) {
  constexpr int kMostEpochs = std::numeric_limits<int>::max();
  require(position.steps >= 0 && position.epoch >= 0 && position.epoch < kMostEpochs &&
              position.samples >= 0,
          "training cannot resume at step ", position.steps, ", epoch ", position.epoch,
          ", sample ", position.samples);
}

void TrainingProgress::resume(const TrainingPosition& position) {
  check_position(position);
  const BatchPlan& batches = built_.batches();
  const std::int64_t step = batches.samples_per_step();
  steps_ = first_step_ = position.steps;
  epochs_ = static_cast<int>(position.epoch);
  epoch_step_ = position.samples / step;
  const bool whole = position.samples >= batches.samples_per_epoch();
  if (!whole && position.samples % step != 0)
    log_warning(batches.batches_per_step() == 1 ? "the global batch of " : "a step of ", step,
                batches.batches_per_step() == 1 ? "" : " samples", " does not divide the ",
                position.samples, " samples that this epoch has taken; the last ",
                position.samples % step, " are taken again");
  if (const std::uint64_t now = built_.options().seed; position.seed != now)
    log_warning("the seed was ", position.seed, " and is now ", now,
                ": the order of the data changes");
  if (whole) end_epoch();
}

TrainingPosition TrainingProgress::position() const {
  return {.steps = steps_,
          .epoch = epochs_,
          .samples = epoch_step_ * built_.batches().samples_per_step(),
          .seed = built_.options().seed};
}

std::int64_t TrainingProgress::total_steps() const {
  const TrainerOptions& options = built_.options();
  if (built_.train_data().is_stream()) return std::max(options.max_steps, steps_);
  std::int64_t left = built_.batches().steps_per_epoch() * (options.epochs - epochs_) - epoch_step_;
  if (options.max_steps > 0) left = std::min(left, options.max_steps - steps_);
  return steps_ + std::max(left, std::int64_t{0});
}

std::int64_t TrainingProgress::steps_left_of_epoch() const {
  return built_.batches().steps_per_epoch() - epoch_step_;
}

StepInfo TrainingProgress::info() const {
  return {.step = steps_,
          .steps_per_epoch = built_.batches().steps_per_epoch(),
          .epoch = epochs_,
          .seconds = seconds(),
          .total_steps = total_steps()};
}

std::int64_t TrainingProgress::samples_of_step() const {
  const BatchPlan& batches = built_.batches();
  return batches.forms()[batches.form_of(next_batch().batch)].total() * batches.batches_per_step();
}

BatchPlan::Position TrainingProgress::next_batch() const {
  return {epochs_, epoch_step_ * built_.batches().batches_per_step()};
}

std::string TrainingProgress::learning_rate() const {
  return built_.options().first_optimizer().rate().str(info());
}

bool TrainingProgress::rates_differ(std::int64_t total) const {
  return std::ranges::any_of(built_.options().optimizers(), [&](const Optimizer& optimizer) {
    return depends_on_length(optimizer.rate(), info(), total, steps_);
  });
}

void TrainingProgress::begin() { began_ = seconds_now(); }

double TrainingProgress::seconds() const { return seconds_now() - began_; }

}  // namespace belfry
