// Checkpoints of training runs: variables, optimizer state, and how far the run has come.
#pragma once
#include <optional>
#include <string>

#include "belfry/framework/base/error.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/core/auto_choice.h"

namespace belfry {

class Trainer;
struct TrainingPosition;

struct TrainingSaveOptions {
  bool overwrite = false;  // a checkpoint of another model, too
  bool keep_old = false;   // of SaveOptions
  bool test_diverged =
      false;  // the manifest notes that the test loss of these values is not finite
};

// Throws as save_checkpoint() (framework/checkpoint/checkpoint.h) and require_equal_replicas() do,
// and InvalidArgument while the loss is not finite, if that replaced the checkpoint of a run whose
// losses were. Returns what save_checkpoint() does.
std::string save_training(Trainer& trainer, const std::string& path,
                          const TrainingSaveOptions& options = {});

SaveOptions training_save_options(bool overwrite);

// What save_training() would write, with members that `more` adds, copied at the end of a step: to
// be saved while training goes on, with training_save_options(). Throws as
// require_equal_replicas().
CheckpointSnapshot snapshot_training(Trainer& trainer, const Json& more);

// A checkpoint of another run: with another model, optimizer, global batch, seed or other data.
class OtherRun : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// inspect_checkpoint(); none if there is none that can be read.
std::optional<CheckpointInfo> find_training(const std::string& path);

// Of a checkpoint without a position: step 0. Throws IoError naming the manifest unless it holds
// what save_training() writes.
TrainingPosition position_in(const CheckpointInfo& info);

// Unless save_training() has noted that the loss, or the test loss, was not finite.
bool has_good_losses(const CheckpointInfo& info);

// What becomes of a checkpoint whose run had another model, optimizer, global batch, seed or data.
enum class OtherRuns { kTell, kRefuse };

// Before Trainer::train(): sets all variables and the state of callbacks, and goes on where the run
// that saved them was, to the bits of a run that never stopped. Where these cannot be the same, it
// warns and says why. A checkpoint without a position counts as step 0. Returns a line for people.
// Throws as restore_checkpoint() and Trainer::resume() do, and OtherRun, naming the first
// difference, if that is to be refused; nothing is set then.
std::string restore_training(Trainer& trainer, const std::string& path,
                             OtherRuns others = OtherRuns::kTell);

// What `auto` chose for the run that saved this checkpoint; none if that chose nothing. Throws
// IoError naming the manifest unless it holds what save_training() writes.
std::optional<KeptChoice> choice_in(const CheckpointInfo& info);

}  // namespace belfry
