// The file of --memory_report, and the line about memory before the first step.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/machine/planned_memory.h"
#include "belfry/trainers/util/console.h"
#include "belfry/trainers/util/output_file.h"

namespace belfry {

// {"planned_bytes", "devices": [{"device", "planned_bytes", "kinds": {"weights": ..}}],
// "saved_copy_bytes", "memory_saves_bytes", "data_bytes", "largest_tensors": [{"name", "line",
// "kind", "device", "bytes"}]}: ten tensors, the largest first. planned_bytes is the sum over the
// devices and other memory of the process. The bytes of a device are the sum of its kinds
// (memory_kinds.h).
JsonValue memory_json(const MemoryReport& report, const HeldMemory& held);

// Writes the report of a training program, with the memory that it holds outside sessions. `copies`
// as in TellMemory.
void write_memory_report(const Session& session, int copies, OutputFile& file);
HeldMemory held_memory(const Graph& graph, int copies);
// "saves in memory: 3.20 MiB in /dev/shm on each host"; "" for none.
std::string memory_saves_line(const HeldMemory& held);

// "memory: 69.10 MiB planned", and an indented line each for devices with equal needs: "CPU:1 CPU:2
// each 15.45 MiB (activations 13.00 MiB, weights 1.60 MiB, ...)": the same bytes. Kinds with less
// than a hundredth of a device are left out. If there is a copy for a checkpoint that is being
// written, it has a separate line.
std::string memory_line(const MemoryReport& report, const HeldMemory& held);

// How much host memory training may plan to use, and the advice if it plans more.
struct MemoryLimit {
  std::int64_t bytes = host_memory();
  std::string advice = "use a smaller batch or fewer devices";
};

// Prints memory_line() when all steps of the run are planned. It must come after Evaluation in the
// list of callbacks.
class TellMemory final : public Callback {
 public:
  // `copies` of the variables: 0, or 1 to write checkpoints while training continues, and those
  // that are kept in memory (MemorySaver, which looks for room for these).
  TellMemory(Console& console, int copies, MemoryLimit limit = {})
      : console_(console), copies_(copies), limit_(std::move(limit)) {}
  CallbackPhase phase() const override { return CallbackPhase::kJudge; }
  // Throws OutOfMemory if the CPUs of this process need more memory than the limit. It counts the
  // steps planned so far: before setup() those of training, later also those of the evaluation.
  void check(Trainer& trainer) const override;
  void setup(Trainer& trainer) override;

 private:
  Console& console_;
  int copies_;
  MemoryLimit limit_;
};

}  // namespace belfry
