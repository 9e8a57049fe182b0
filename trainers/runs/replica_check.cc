#include "belfry/trainers/runs/replica_check.h"

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {

ReplicaCheck::ReplicaCheck(std::int64_t every) : every_(every) {
  require(every >= 1, "check_replicas_every is ", every, "; it must be at least 1");
}

void ReplicaCheck::after_step(Trainer& trainer, const StepInfo& info) {
  const std::int64_t steps = info.step + 1;
  if (steps % every_ != 0) return;
  require_equal_replicas(trainer.session(), trainer.graph(), steps);
  trainer.loop().compare_processes(steps);
}

}  // namespace belfry
