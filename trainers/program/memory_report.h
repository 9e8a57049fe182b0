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
// "saved_copy_bytes", "data_bytes", "largest_tensors": [{"name", "line", "kind", "device",
// "bytes"}]}: ten tensors, the largest first. planned_bytes is the sum over the devices and other
// memory of the process. Bytes of a device are the sum of its kinds, whose meaning memory_kinds.h
// states.
JsonValue memory_json(const MemoryReport& report, const HeldMemory& held);

// Writes the report of a training program, with the memory that it holds beside sessions. `saves`
// as in TellMemory.
void write_memory_report(const Session& session, bool saves, OutputFile& file);
HeldMemory held_memory(const Graph& graph, bool saves);

// "memory: 69.10 MiB planned", and an indented line each for devices with equal needs: "CPU:1 CPU:2
// each 15.45 MiB (activations 13.00 MiB, weights 1.60 MiB, ...)": the same bytes. Kinds with less
// than a hundredth of a device are left out. The copy for a checkpoint that is being written has a
// line of its own, if there is one.
std::string memory_line(const MemoryReport& report, const HeldMemory& held);

// The memory of the host that training may plan to take, and what to do if it plans more.
struct MemoryLimit {
  std::int64_t bytes = host_memory();
  std::string advice = "use a smaller batch or fewer devices";
};

// Prints memory_line() when all steps of the run are planned. It must be called after Evaluation.
class TellMemory final : public Callback {
 public:
  // `saves`: checkpoints are written while training goes on, from a copy of the variables.
  TellMemory(Console& console, bool saves, MemoryLimit limit = {})
      : console_(console), saves_(saves), limit_(std::move(limit)) {}
  CallbackPhase phase() const override { return CallbackPhase::kJudge; }
  // Throws OutOfMemory if the CPUs of this process need more memory than the limit, as far as steps
  // are planned: those of training before setup(), then those of the evaluation, too.
  void check(Trainer& trainer) const override;
  void setup(Trainer& trainer) override;

 private:
  Console& console_;
  bool saves_;
  MemoryLimit limit_;
};

// The bytes of the copy that a checkpoint is written from.
std::int64_t bytes_of_snapshot(const Graph& graph);

}  // namespace belfry
