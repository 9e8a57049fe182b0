// hashes.jsonl of a run directory: hashes of all variables and gradients, by which `belfry bisect`
// finds the step at which two runs diverge, and `belfry replay` the process that computed wrong.
//   {"step":20,"contributions":[{"tower":0,"rank":0,"host":"a","gradients":{"conv0/W":"7e..."}}],
//    "gradients":{"conv0/W":"9a01..."},"variables":{"conv0/W":"00f3...","conv0/b":"..."}}
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/line_file.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {

// Hashes of one tensor each, by name.
using NamedHashes = std::vector<std::pair<std::string, std::string>>;

// What is noted after a step.
struct StepHashes {
  struct OfTower {
    std::int64_t tower = 0;
    int rank = 0;
    std::string host;
    NamedHashes gradients = {};  // before they are combined
    // kOpDigits of the hash of each output of each op, in the order of their names; "" if they are
    // not known. The names, in the order of the plan; none if this was read.
    std::string ops = {};
    std::vector<std::string> op_names = {};
  };
  static constexpr std::size_t kOpDigits = 8;

  std::vector<OfTower> contributions;  // of all processes; empty if they are not kept
  NamedHashes gradients;               // combined; empty if they are not kept
  NamedHashes variables;               // with slots, in the order of the graph

  JsonValue json(std::int64_t step) const;
  // Throws InvalidArgument for what json() cannot give.
  static StepHashes read(const JsonValue& json);
};

// The first op of `computed`, in the order in which ops run, whose output has another hash in
// `noted`; "" if none has, or if it is not known.
std::string first_other_op(const StepHashes::OfTower& noted, const StepHashes::OfTower& computed);

// The hashes of the last step: of each tower's gradients and each combined gradient, if the trainer
// keeps them (TrainerOptions::contributions_every and keeps_gradients), and of each variable and
// slot of tower 0. All processes call it, and get the contributions of all.
StepHashes hashes_of_step(Trainer& trainer);

// What a run directory, or a file like its hashes.jsonl, has noted, by step. Throws NotFoundError
// for one without hashes, and IoError naming file and line for lines without.
std::map<std::int64_t, StepHashes> noted_hashes(FileSystem& files, const std::string& path);

// Adds a line after every `every` steps.
class HashLog final : public Callback {
 public:
  HashLog(FileSystem& files, std::string path, std::int64_t every,
          OnSaveError on_error = OnSaveError::kRetry);
  // In a process that writes nothing, and gives its contributions to the one that does.
  explicit HashLog(std::int64_t every);
  LineFile& file() { return *file_; }
  CallbackPhase phase() const override { return CallbackPhase::kRecord; }
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  std::optional<LineFile> file_;
  std::int64_t every_;
};

// Where two runs diverge.
struct Parting {
  std::int64_t compared = 0;                   // steps that both have
  std::optional<std::int64_t> equal, differs;  // the last equal step, and the first that differs
  // What differs after that step, in the order of the graph: "tower 3's gradient of fc0/W", if both
  // have the same towers; "the gradient of fc0/W"; "fc0/W".
  std::vector<std::string> variables;
};

// Compares two run directories, or files like their hashes.jsonl. Throws NotFoundError for one
// without hashes, IoError naming file and line for lines without hashes, and InvalidArgument
// without a common step.
Parting find_parting(const std::string& run_a, const std::string& run_b,
                     FileSystem& files = local_file_system());

}  // namespace belfry
