// Several strategies, each for tensors of its range of sizes.
#pragma once
#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"

namespace belfry {

// A strategy and the largest tensors that it takes, in bytes.
struct SizeRange {
  std::shared_ptr<const Strategy> strategy;
  std::int64_t limit = kNoLimit;
};

// Each tensor goes to the first range whose limit it does not exceed. A range without tensors adds
// no node. Canonical if all ranges are. `spec` names it in errors. Throws InvalidArgument unless
// only the last range has no limit, and when it is used for gradients whose shape is not fully
// known.
std::unique_ptr<Strategy> mixed(std::vector<SizeRange> ranges, std::string spec);

}  // namespace belfry
