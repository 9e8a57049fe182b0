// GatherMoments: gathers the moments of a batch's parts from several processes.
#pragma once
#include <cstddef>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// n parts of this process, each mean [c], squares [c] and count as in combine_moments.h -> [m n, 2
// c + 1], a row per part, the parts of the lowest rank first: those of the m processes of the first
// of tree_levels() (framework/core_ops/covering_nodes.h), each of which has n parts. If there are
// more levels, each merges these rows into one (kMergeMoments), which the node of the next level
// gathers. Plans make these nodes from BatchStatistics.
const Op& gather_moments_at(std::size_t level);
extern const Op kGatherMoments;  // at level 0

}  // namespace belfry
