#include "belfry/allreduce/strategy.h"

#include <algorithm>

#include "belfry/allreduce/pieces.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"

namespace belfry {

std::string Strategy::refusal(const std::vector<DeviceSpec>&) const { return ""; }

std::string Strategy::refusal_of_processes(const std::vector<DeviceSpec>& devices) const {
  return cat("the strategy combines the gradients of one process, and this is one of several; use ",
             std::ranges::any_of(devices, &DeviceSpec::is_gpu) ? "nccl, collective, ring or mpi"
                                                               : "collective, ring or mpi");
}

bool Strategy::canonical(int) const { return false; }

std::unique_ptr<Strategy> Strategy::in_chunks(int) const { return nullptr; }
std::unique_ptr<Strategy> Strategy::in_one_node() const { return nullptr; }

OutputRows Strategy::combine(const GradientTable& grads, Reduction reduction) const {
  OutputRows sums = sum(grads);
  if (reduction == Reduction::kSum) return sums;
  const GradientTable table = grads.with(sums);
  const NameScope names(grads.graph(), "MeanGrads");
  return divided(table, [&](Output total) { return total / grads.towers(); });
}

OutputRows Strategy::sum(const GradientTable&) const {
  throw InternalError("a strategy overrides sum() or combine()");
}

}  // namespace belfry
