// hashes.jsonl of a run directory: fingerprints of all variables, by which `belfry bisect` finds
// the step at which two runs part.
//   {"step":20,"variables":{"conv0/W":"00f3...","conv0/b":"..."}}
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/run_directory.h"

namespace belfry {

// Adds a line behind every `every` steps: a hash of each variable and optimizer slot of tower 0, in
// the order of the graph.
class HashLog final : public Callback {
 public:
  HashLog(FileSystem& files, std::string path, std::int64_t every);
  void setup(Trainer& trainer) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;
  std::string name() const override { return "hash_log"; }
  Json state() const override;
  void restore(const Json& state) override;

 private:
  FileSystem& files_;
  std::string path_;
  std::int64_t every_;
  std::unique_ptr<WritableFile> file_;
  std::uint64_t bytes_ = 0;  // where the next line begins
};

// Where two runs part.
struct Parting {
  std::int64_t compared = 0;                   // steps that both have
  std::optional<std::int64_t> equal, differs;  // the last step before, and the first one of it
  std::vector<std::string> variables;          // that differ then, in the order of the graph
};

// Of two run directories, or files like their hashes.jsonl. Throws NotFound for one without hashes,
// IoError naming file and line for what are none, and InvalidArgument if they have no step in
// common.
Parting find_parting(const std::string& run_a, const std::string& run_b,
                     FileSystem& files = local_file_system());

}  // namespace belfry
