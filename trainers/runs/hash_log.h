// hashes.jsonl of a run directory: fingerprints of all variables and gradients, by which `belfry
// bisect` finds the step at which two runs diverge.
//   {"step":20,"gradients":{"conv0/W":"9a01..."},"variables":{"conv0/W":"00f3...","conv0/b":"..."}}
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/line_file.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {

// Adds a line after every `every` steps. It has a hash of each combined gradient, if the trainer
// keeps them (TrainerOptions::keeps_gradients). It has a hash of each variable and optimizer slot
// of tower 0, in the order of the graph.
class HashLog final : public Callback {
 public:
  HashLog(FileSystem& files, std::string path, std::int64_t every,
          OnSaveError on_error = OnSaveError::kRetry);
  LineFile& file() { return file_; }
  CallbackPhase phase() const override { return CallbackPhase::kRecord; }
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  LineFile file_;
  std::int64_t every_;
};

// Where two runs diverge.
struct Parting {
  std::int64_t compared = 0;                   // steps that both have
  std::optional<std::int64_t> equal, differs;  // the last equal step, and the first that differs
  // What differs after that step, in the order of the graph: "the gradient of fc0/W" and so on,
  // then "fc0/W".
  std::vector<std::string> variables;
};

// Compares two run directories, or files like their hashes.jsonl. Throws NotFoundError for one
// without hashes, IoError naming file and line for lines without hashes, and InvalidArgument
// without a common step.
Parting find_parting(const std::string& run_a, const std::string& run_b,
                     FileSystem& files = local_file_system());

}  // namespace belfry
