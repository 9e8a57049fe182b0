// AssignGathered: writes to a variable the parts that other processes have updated. Output 0 is the
// value with all parts.
#pragma once
#include <array>
#include <vector>

#include "belfry/framework/core_ops/cuts.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

// The variable is part of a row gathered from all processes.
struct AssignGatheredOptions {
  std::int64_t first;  // element of the row
  int rank;            // of this process
  Cuts cuts;           // the parts of the variable, as its own elements, by rank
};

extern const Op kAssignGathered;

// The parts of a range of the variable that a kernel writes: before and after the part of this
// process. Either may be empty.
std::array<WorkRange, 2> parts_of_others(const AssignGatheredOptions& options, WorkRange range);

// Writes the parts of other processes from `row`, which comes from all_gather().
Node& assign_gathered(Variable variable, Output row, AssignGatheredOptions options, At at = {});

// The nodes of the graph that assign_gathered() made, in order of creation.
std::vector<Node*> gathered_assigns(const Graph& graph);

}  // namespace belfry
