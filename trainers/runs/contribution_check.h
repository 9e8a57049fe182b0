// Ends a run in which a process contributes gradients that are wrong.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/training_record.h"

namespace belfry {

class BuiltTraining;
class CompiledStep;

// A gradient that is wrong before the sum makes all replicas equally wrong, so that ReplicaCheck
// finds nothing. So before every so many steps, each process computes what the towers of the next
// process will contribute, with the rows and the random numbers of those; after the step the two
// compare check hashes. All processes do this at once. A checked step takes as long as one, and a
// forward and a backward pass more.
//
// It looks at the last batch of a step, and leaves out steps whose towers have unequal batches.
class ContributionCheck final : public Callback {
 public:
  // Throws InvalidArgument for `every` less than 1. options().contributions_every must have it.
  explicit ContributionCheck(std::int64_t every);
  // After callbacks that write to variables before a step, if it is the last of the program.
  CallbackPhase phase() const override { return CallbackPhase::kOwn; }
  // Throws OptionError if another process cannot compute the same bits, and says why.
  void check(Trainer& trainer) const override;
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  // Throws CorruptionError in all processes.
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  bool is_due(const Trainer& trainer, const StepInfo& info) const;

  std::int64_t every_;
  std::map<std::size_t, CompiledStep*> steps_;        // by form of batches
  std::vector<std::vector<std::uint64_t>> computed_;  // for the next process, by tower and variable
};

}  // namespace belfry
