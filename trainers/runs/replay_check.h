// Computes steps of a run again, and says which process computed them otherwise.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/hash_log.h"

namespace belfry {

// In the replay of a run by one process, with one device for each tower of the run, that starts
// from a checkpoint of it: compares each step with what the run has noted, and ends the training
// after step `last`.
class ReplayCheck final : public Callback {
 public:
  // Reads the notes and the newest checkpoint of the run directory. Throws as noted_hashes() and
  // inspect_checkpoint() do, and InvalidArgument if the run has noted none of the steps after its
  // step `first` up to `last`.
  ReplayCheck(const std::string& run, std::int64_t first, std::int64_t last);

  CallbackPhase phase() const override { return CallbackPhase::kCheck; }
  // Throws InvalidArgument saying why, if these devices, libraries, options and data cannot give
  // the bits of the run.
  void check(Trainer& trainer) const override;
  // Throws CorruptionError, naming what differs, for the first step that does.
  void after_step(Trainer& trainer, const StepInfo& info) override;

  // After training: what agrees, for people. Throws InvalidArgument if the training ended before
  // the last step.
  std::string outcome() const;

 private:
  std::string run_;
  std::int64_t last_;
  std::map<std::int64_t, StepHashes> noted_;  // of the steps that are computed again
  JsonValue sources_;                         // bit_sources() of the run, and more
  std::int64_t equal_, compared_ = 0;         // the last step that is known to be equal
  std::size_t towers_ = 0;                    // whose contributions to that step were compared
  std::int64_t steps_ = 0;
};

// What differs between a step as a run has noted it, and as it is computed again; "" for nothing.
// `equal`: the last step that was equal. Contributions are of the last of a step's `batches`.
std::string difference_of_step(const StepHashes& noted, const StepHashes& computed,
                               std::int64_t step, std::int64_t equal, std::int64_t batches = 1);

}  // namespace belfry
