// Saves of a run in the memory of its hosts: newer than those on disk, and lost with the host. If
// a process dies, the run resumes from them, after fewer steps than from the disk.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/group/processes.h"
#include "belfry/trainers/callbacks/background_save.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {

class RunSaver;

// How many saves a host keeps in memory.
inline constexpr int kSavesInMemory = 2;

// Bytes: of one copy of the state, what can be written into memory_file_system(), what the training
// plans to use besides, in all processes of a host, and what this machine or its control group has.
struct MemoryNeeds {
  std::int64_t state, room, planned, memory;
};
// Why the last kSavesInMemory saves do not fit; "" if they do. Files in memory count as memory of
// the control group.
std::string refusal_of_memory_saves(const MemoryNeeds& needs);

// Keeps the last kSavesInMemory saves of a run in memory. The first process of each host writes
// them, in the background. When the run has ended well, it removes them.
class MemorySaver final : public Callback {
 public:
  struct Options {
    std::int64_t every_steps = 0;  // 0: keeps none, and removes those of a run before
    // Whether a host without room for them ends the run; otherwise a warning says so, and the run
    // keeps none in memory.
    bool refuses = false;
  };

  // `processes` is null for a lone process. `saver` is that of the run directory, and null in
  // processes that do not have it.
  MemorySaver(Options options, Processes* processes, RunSaver* saver);

  // Which run this is: what the run directory says, whose saves may be replaced; then, before
  // setup(), what rank 0 says.
  void set_run_id(std::string id) { id_ = std::move(id); }

  CallbackPhase phase() const override { return CallbackPhase::kSave; }
  // Throws OptionMistake if there is no room, and the options say so.
  void check(Trainer& trainer) const override;
  void setup(Trainer& trainer) override;
  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_training(Trainer& trainer, const StepInfo& info) override;
  // Waits for the save under way. What is saved stays, for the next start.
  void on_error(Trainer& trainer, const std::exception& error) override;

 private:
  std::string why_no_room(Trainer& trainer) const;
  std::string take_folder(Trainer& trainer);
  void agree(Trainer& trainer);
  JsonValue state_of_rank_0(Trainer& trainer);
  void save(Trainer& trainer, std::int64_t steps);
  void write(const CheckpointSnapshot& snapshot, std::int64_t steps);
  void settle();
  void remove_all();

  const Options options_;
  Processes* const processes_;
  RunSaver* const saver_;
  std::string id_;
  bool is_on_ = false, spans_hosts_ = false, has_warned_ = false;
  std::int64_t begun_at_ = 0;             // the step at which this start began
  std::unique_ptr<RunDirectory> folder_;  // of the first process of a host
  SnapshotMemory copies_;
  BackgroundSave saving_;  // last: it uses the others
};

}  // namespace belfry
