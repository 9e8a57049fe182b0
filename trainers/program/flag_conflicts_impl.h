// Which flags of training contradict each other.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// Unless `condition` holds, throws a FlagError about this option. The parts are its whole text.
template <class... Parts>
void require_flag(bool condition, std::string_view option, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw FlagError(about_option(option, parts...));
}

// The command line without ignored flags.
class UsedFlags {
 public:
  explicit UsedFlags(const FlagParser& parser) : parser_(parser) {}

  void leave_out(const std::string& name) { left_out_.push_back(name); }
  bool given(const std::string& name) const;
  std::string written(const std::string& name) const { return parser_.flag(name).written; }
  // "--trainer=simple" as written, or "--trainer=simple (chosen for --devices=cpu:1)".
  std::string trainer(const std::string& kind) const;

 private:
  const FlagParser& parser_;
  std::vector<std::string> left_out_;
};

// Throws FlagError for a flag that has no use with --check_equivalence, --dry_run, --summary,
// --explain or --evaluate_only. Call it before anything is chosen.
void refuse_beside_inspection(const TrainFlags& flags, const UsedFlags& used);

// Throws FlagError for the first contradiction. Call it once the trainer `kind`, strategy and
// buckets are chosen. `wishes_auto`: the user asked for `auto` among the strategies.
void refuse_conflicts(const TrainFlags& flags, const UsedFlags& used, const TrainerKind& kind,
                      bool wishes_auto);

}  // namespace belfry
