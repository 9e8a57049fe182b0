// Checkpoints of training runs: variables, optimizer state, and how far the run has come.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "belfry/framework/base/error.h"
#include "belfry/framework/checkpoint/checkpoint.h"

namespace belfry {

class Trainer;
struct TrainingPosition;

// What a checkpoint of a run keeps besides variables. Called between two steps.
JsonValue training_state(const Trainer& trainer);

// A copy of the state of a run, with additional members `more`, taken between two steps. It can be
// saved while training continues. Throws as require_equal_replicas().
CheckpointSnapshot snapshot_training(Trainer& trainer, const JsonValue& more);

// Takes a snapshot, saves it, and waits until it is saved. Also throws as
// CheckpointSnapshot::save() does.
void save_training(Trainer& trainer, const std::string& path);

// A checkpoint of another run: with another model, optimizer, global batch, seed or other data.
class OtherRun : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

// The result of inspect_checkpoint(); none if there is no checkpoint that can be read.
std::optional<CheckpointInfo> find_training(const std::string& path);

// The position that a checkpoint keeps; step 0 if it has none. Throws IoError naming the manifest
// unless it holds what save_training() writes.
TrainingPosition position_in(const CheckpointInfo& info);

// "global_batch" or "shards" of the run that saved it; 0 if the checkpoint does not say.
std::int64_t saved_integer(const CheckpointInfo& info, std::string_view name);

// How to treat a checkpoint whose run had another model, optimizer, global batch, seed or data.
enum class OtherRuns { kTell, kRefuse };

// Call it before Trainer::train(). Sets all variables and the state of callbacks, so that training
// resumes where the saved run was, with the bits of a run that never stopped. If the bits cannot be
// the same, a warning says why. A checkpoint without a position counts as step 0. Returns a line
// for people. Throws as restore_checkpoint() and TrainingProgress::resume() do, and OtherRun,
// naming the first difference, for kRefuse; then nothing is set.
//
// Before an evaluation alone it restores the weights, as restore_weights() does, and the position,
// whatever the run was.
std::string restore_training(Trainer& trainer, const std::string& path,
                             OtherRuns others = OtherRuns::kTell);

}  // namespace belfry
