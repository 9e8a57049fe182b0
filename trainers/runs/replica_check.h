// Ends a run whose copies of a variable are no longer equal.
#pragma once
#include <cstdint>
#include <optional>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/equal_processes.h"

namespace belfry {

class RunDirectory;

// Compares the copies of variables after every `every` steps, as each save does: within the process
// (require_equal_replicas()), then between all processes, by a hash that travels with the next
// step. Where no majority can tell which process is wrong, the run that resumes from a save before
// that can: what the processes had is kept in the run directory, and once this run has made those
// steps again, a warning names the processes that were wrong.
class ReplicaCheck final : public Callback {
 public:
  static constexpr std::int64_t kEvery = 100;  // by default, with several processes

  // Borrows the directory; null: this process has none. Throws InvalidArgument for `every` less
  // than 1.
  explicit ReplicaCheck(std::int64_t every, RunDirectory* directory = nullptr);
  CallbackPhase phase() const override { return CallbackPhase::kCheck; }
  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  void on_error(Trainer& trainer, const std::exception& error) override;

 private:
  void judge(Trainer& trainer, std::int64_t steps);

  std::int64_t every_;
  RunDirectory* directory_;
  std::optional<ReplicaDifference> open_;  // of the run before
};

}  // namespace belfry
