// Checkpoints of training runs: variables, optimizer state, and how far the run has come.
#pragma once
#include <optional>
#include <string>

#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/core/auto_choice.h"
#include "belfry/trainers/core/callbacks.h"

namespace belfry {

// `overwrite`: another model's checkpoint, too. Throws as save_checkpoint()
// (framework/checkpoint/checkpoint.h) does, and InvalidArgument while the loss is not finite, if
// that replaced the checkpoint of a run whose loss was.
void save_training(Trainer& trainer, const std::string& path, bool overwrite = false);

// Before Trainer::train(): sets all variables and goes on where the run that saved them was, so
// that with the same seed, devices and batch size it ends with the bits of a run that never
// stopped. A checkpoint without a position counts as step 0. Returns a line for people. Throws as
// restore_checkpoint() and Trainer::resume() do.
std::string restore_training(Trainer& trainer, const std::string& path);

// What `auto` chose for the run that saved this checkpoint; none if that chose nothing. Throws
// IoError naming the manifest unless it holds what save_training() writes.
std::optional<KeptChoice> choice_in(const CheckpointInfo& info);

// Saves after each epoch, and at the end of a last epoch that was cut short. Throws as
// save_training() does.
class SaveCheckpoint : public Callback {
 public:
  // Throws IoError now if nothing can be saved at `path` later; before the first step,
  // InvalidArgument if there is a checkpoint of another model, unless that may be overwritten.
  explicit SaveCheckpoint(std::string path, bool overwrite = false);
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  // For people: what was saved last; "" before.
  const std::string& saved() const { return saved_; }

 private:
  void save(Trainer& trainer, const StepInfo& info);

  std::string path_, saved_;
  bool overwrite_;
  std::int64_t saved_at_ = -1;  // steps
};

}  // namespace belfry
