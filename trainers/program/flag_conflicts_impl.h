// Which flags of training contradict each other.
#pragma once
#include <string>
#include <vector>

#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// The command line without the flags that are left out.
class UsedFlags {
 public:
  explicit UsedFlags(const FlagParser& parser) : parser_(parser) {}

  void leave_out(const std::string& name) { left_out_.push_back(name); }
  bool given(const std::string& name) const;
  std::string written(const std::string& name) const { return parser_.flag(name).written; }
  // "--trainer=simple" as it is written, or "--trainer=simple (chosen for --devices=cpu:1)".
  std::string trainer(const std::string& kind) const;

 private:
  const FlagParser& parser_;
  std::vector<std::string> left_out_;
};

// Throws FlagError for a flag that has no use beside --check_equivalence, --dry_run, --summary or
// --explain. Nothing is chosen yet.
void refuse_beside_inspection(const TrainFlags& flags, const UsedFlags& used);

// Throws FlagError for the first contradiction, once the trainer `kind`, strategy and buckets are
// chosen. `wishes_auto`: what was asked for has `auto` among its strategies.
void refuse_conflicts(const TrainFlags& flags, const UsedFlags& used, const TrainerKind& kind,
                      bool wishes_auto);

}  // namespace belfry
