// A training program as one of several processes: who speaks, and which cores each takes.
#pragma once
#include <memory>

#include "belfry/framework/group/processes.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// Joins the processes that the environment names; null if this one is alone.
std::shared_ptr<Processes> join_processes(const TrainFlags& flags);

// The flags of one of several processes: rank 0 alone writes files, and without --threads those of
// one host share its cores. Throws FlagError for what several processes cannot do yet.
TrainFlags of_process(TrainFlags flags, Processes& processes);

// Runs one of several processes: what it throws ends the others, and says which one it was.
int run_process(Processes& processes, const std::function<int()>& body);

}  // namespace belfry
