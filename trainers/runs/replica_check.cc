#include "belfry/trainers/runs/replica_check.h"

#include <string>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/independence.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {

ReplicaCheck::ReplicaCheck(std::int64_t every, RunDirectory* directory)
    : every_(every), directory_(directory) {
  require(every >= 1, "check_replicas_every is ", every, "; it must be at least 1");
}

void ReplicaCheck::setup(Trainer& trainer) {
  const std::optional<std::string> text =
      directory_ ? directory_->read(kDifferenceFile) : std::nullopt;
  if (!text) return;
  try {
    open_ = ReplicaDifference::read(JsonValue::parse(*text));
  } catch (const InvalidArgument& error) {
    log_warning(directory_->path_of(kDifferenceFile), ": ", error.what());
  }
  if (!open_ || open_->steps > trainer.steps()) return;
  open_.reset();  // those steps are not made again
  directory_->files().remove(directory_->path_of(kDifferenceFile));
}

void ReplicaCheck::after_step(Trainer& trainer, const StepInfo& info) {
  const std::int64_t steps = info.step + 1;
  if (open_) judge(trainer, steps);
  if (steps % every_ != 0) return;
  require_equal_replicas(trainer.session(), trainer.graph(), steps);
  trainer.loop().compare_processes_by_next_step(steps);
}

// The first step with another loss decides; without one, the variables do.
void ReplicaCheck::judge(Trainer& trainer, std::int64_t steps) {
  std::string judged;
  if (trainer.built().processes()) judged = open_->judged_by(trainer.loop().losses_of_towers());
  if (judged.empty() && open_->steps == steps)
    judged = open_->judged_by(replica_hashes(trainer.session(), trainer.graph(), steps));
  if (judged.empty() && open_->steps > steps) return;
  if (!judged.empty()) log_warning(judged);
  open_.reset();
  directory_->files().remove(directory_->path_of(kDifferenceFile));
}

void ReplicaCheck::on_error(Trainer&, const std::exception& error) {
  const auto* const differ = dynamic_cast<const ReplicasDiffer*>(&error);
  if (differ && directory_)
    directory_->write(kDifferenceFile, differ->difference().json().str(2) + "\n");
}

}  // namespace belfry
