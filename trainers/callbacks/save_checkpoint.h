// Saves a training run as it goes, and loses nothing that was good before.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "belfry/trainers/callbacks/background_save.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/training_checkpoint.h"

namespace belfry {

// What a run saves beside PATH, at PATH and this, if it cannot save at PATH or must not.
inline constexpr char kBesideCheckpoint[] = ".beside";

// Saves after each epoch, and at the end of a last epoch that was cut short. It copies the state
// then, and writes it while the epoch is evaluated or the next one trains. What was begun is
// settled behind an evaluation, before the next save and at the end. Throws as save_training()
// does, then or at once; but where nothing can be written at `path` any more, as a stray file lies
// in that checkpoint, it saves beside it, warns, and notes the failure().
class SaveCheckpoint : public Callback {
 public:
  // Throws IoError now if nothing can be saved at `path` later; before the first step,
  // InvalidArgument if there is a checkpoint of another model, unless that may be overwritten.
  explicit SaveCheckpoint(std::string path, bool overwrite = false);
  // Warns if the run is to replace a checkpoint of more steps than it has.
  void setup(Trainer& trainer) override;
  void after_epoch(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  // Looks at the test of what was saved last, if wait_for_test() was called. If the test loss is
  // not finite, the checkpoint that was replaced is put back, if its losses were, and the present
  // values are saved beside it.
  void after_evaluation(Trainer& trainer, const StepInfo& info) override;
  // Settles, so that saved() knows.
  void on_error(Trainer& trainer, const std::exception& error) override;

  // From now on, what a save replaces is kept until the evaluation that follows, for trainers with
  // test data.
  void wait_for_test() { waits_ = true; }

  // For people, as it is now: what was settled last; "" before.
  std::string saved() const;
  // Why the last save is not at `path`, and where it is; "" if it is there.
  const std::string& failure() const { return failure_; }

 private:
  // What became of a save.
  struct Saved {
    std::int64_t steps = -1;
    int epochs = 0;        // whole ones
    std::string manifest;  // "" if it is beside
    std::string why = {};  // it is beside
  };

  void save(Trainer& trainer, const StepInfo& info);
  void write(const CheckpointSnapshot& snapshot, bool keep_old);
  void settle();
  void put_back(Trainer& trainer);
  std::string beside() const { return path_ + kBesideCheckpoint; }

  std::string path_, saved_path_, failure_;
  bool overwrite_, waits_ = false, is_tested_ = true;
  Saved saved_;
  std::optional<CheckpointInfo> replaced_;  // what after_evaluation() may put back
  Saved begun_;                             // the thread's until settle()
  BackgroundSave saving_;                   // last: it uses the others
};

}  // namespace belfry
