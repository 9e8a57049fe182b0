// Checkpoints of training runs: variables, optimizer state, and how far the run has come.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "belfry/framework/base/error.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/core/auto_options.h"

namespace belfry {

class Trainer;
struct TrainingPosition;

// The state of a run, with members that `more` adds, copied between two steps: to be saved while
// training goes on. Throws as require_equal_replicas().
CheckpointSnapshot snapshot_training(Trainer& trainer, const JsonValue& more);

// All this at once: saves, and waits until that is done. Throws as CheckpointSnapshot::save(), too.
void save_training(Trainer& trainer, const std::string& path);

// A checkpoint of another run: with another model, optimizer, global batch, seed or other data.
class OtherRun : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// inspect_checkpoint(); none if there is none that can be read.
std::optional<CheckpointInfo> find_training(const std::string& path);

// The position that a checkpoint keeps; step 0 if it has none. Throws IoError naming the manifest
// unless it holds what save_training() writes.
TrainingPosition position_in(const CheckpointInfo& info);

// "global_batch" or "shards" of the run that saved it; 0 if the checkpoint does not say.
std::int64_t saved_integer(const CheckpointInfo& info, std::string_view name);

// How to treat a checkpoint whose run had another model, optimizer, global batch, seed or data.
enum class OtherRuns { kTell, kRefuse };

// Before Trainer::train(): sets all variables and the state of callbacks. The training goes on
// where the run that saved them was, to the bits of a run that never stopped. Where these cannot be
// the same, it warns and says why. A checkpoint without a position counts as step 0. Returns a line
// for people. Throws as restore_checkpoint() and TrainingProgress::resume() do, and OtherRun,
// naming the first difference, if that is to be refused; nothing is set then.
std::string restore_training(Trainer& trainer, const std::string& path,
                             OtherRuns others = OtherRuns::kTell);

// The choice of `auto` in the run that saved this checkpoint; none if that chose nothing. Throws
// IoError naming the manifest unless it holds what save_training() writes.
std::optional<KeptChoice> choice_in(const CheckpointInfo& info);

}  // namespace belfry
