// Saves a training run as it goes, and loses no good checkpoint.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/trainers/callbacks/background_save.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/training_checkpoint.h"

namespace belfry {

// A run saves at PATH with this suffix if it cannot or must not save at PATH.
inline constexpr char kBesideCheckpoint[] = ".beside";

// Saves after each epoch, and at the end of a last epoch that was cut short. It copies the state
// then, and writes it while the epoch is evaluated or the next one trains. It settles a save behind
// an evaluation, before the next save and at the end. Throws as save_training() does, then or at
// once. If a stray file in the checkpoint at `path` prevents a save, it saves beside it, warns, and
// notes the failure().
class SaveCheckpoint : public Callback {
 public:
  // Throws IoError if nothing can be saved at `path` later. Before the first step it throws
  // InvalidArgument if there is a checkpoint of another model, unless that may be overwritten.
  explicit SaveCheckpoint(std::string path, bool overwrite = false);
  // Warns if the run is to replace a checkpoint of more steps than it has.
  void setup(Trainer& trainer) override;
  // Several processes compare their variables after the last step of each epoch.
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  // Looks at the test of the last save, if wait_for_test() was called. If the test loss is not
  // finite, but the losses of the replaced checkpoint were, it puts that one back. The present
  // values are then saved beside it.
  void after_evaluation(Trainer& trainer, const StepInfo& info) override;
  // Settles, so that saved() is right.
  void on_error(Trainer& trainer, const std::exception& error) override;

  // From now on, a replaced checkpoint is kept until the next evaluation, for trainers with test
  // data.
  void wait_for_test() { waits_ = true; }

  // For people: the checkpoint that was settled last, as it is now; "" before.
  std::string saved() const;
  // Why the last save is not at `path`, and where it is; "" if it is there.
  const std::string& failure() const { return failure_; }

 private:
  // The outcome of a save.
  struct Saved {
    std::int64_t steps = -1;
    int epochs = 0;        // whole epochs
    std::string manifest;  // "" if the save is beside `path`
    std::string why = {};  // why it is beside
  };

  void save(Trainer& trainer, const StepInfo& info);
  void write(const CheckpointSnapshot& snapshot, bool keep_old);
  void settle();
  void put_back(Trainer& trainer);
  std::string beside() const { return path_ + kBesideCheckpoint; }

  std::string path_, saved_path_, failure_;
  bool overwrite_, waits_ = false, is_tested_ = true;
  Saved saved_;
  std::optional<CheckpointInfo> replaced_;  // the checkpoint that after_evaluation() may put back
  Saved begun_;                             // belongs to the thread until settle()
  BackgroundSave saving_;                   // last: it uses the others
};

}  // namespace belfry
