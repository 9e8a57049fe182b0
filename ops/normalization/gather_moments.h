// GatherMoments: gathers the moments of a batch's parts from several processes.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// n parts of this process, each mean [c], squares [c] and count as in combine_moments.h -> [P n, 2
// c + 1], the same in all P processes, each of which has n parts: a row per part, the parts of rank
// 0 first. Plans make it from BatchStatistics.
extern const Op kGatherMoments;

}  // namespace belfry
