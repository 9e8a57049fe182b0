// Checks that all processes of a training have the same variables.
#pragma once
#include <cstdint>

#include "belfry/framework/group/processes.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// All processes call it, after `steps` steps. Throws Error in all of them unless all variables have
// equal bits in all processes. It names the ranks that differ from most of the others (from rank 0,
// if there is no majority), and the first variable. Slots of which each process keeps a part are
// left out. Processes that agree exchange 16 characters each.
void require_equal_processes(Processes& processes, Session& session, const Graph& graph,
                             std::int64_t steps);

}  // namespace belfry
