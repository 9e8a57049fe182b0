// A training program as one of several processes: who speaks, and which cores each takes.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/group/processes.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// Joins the processes that the environment names; null if this one is alone.
std::shared_ptr<Processes> join_processes(const TrainFlags& flags);

// The flags of one of several processes: rank 0 alone writes files (of --trace_file for all), and
// without --threads those of one host share its cores. Throws FlagError for what several processes
// cannot do yet, and InvalidArgument for flags that differ.
TrainFlags of_process(TrainFlags flags, std::shared_ptr<Processes> processes);

// The flags of a program that is alone: with --processes, of rank 0 of so many, whose step a dry
// run plans. Throws FlagError for what several processes cannot do.
TrainFlags of_planned_process(TrainFlags flags);
// How a plan of several processes that combines gradients so takes them from GPUs to other hosts;
// "" for plans of CPUs.
std::string note_of_plan(const TrainFlags& flags, std::string_view allreduce);

// Whether this process prints and writes: rank 0 of several does, and one that is alone.
bool speaks(const TrainFlags& flags);
// The devices of all processes, each of which has as many.
std::vector<DeviceSpec> devices_of_all(const TrainFlags& flags);

// The host of each process; none for one that is alone (null).
std::vector<std::string> hosts_of(const Processes* processes);

// The workers that this process is to start: processes that may use the same cores share them.
// All processes call it; rank 0 warns of those that may use fewer cores than their part.
int share_of_cores(Processes& processes);

// Runs one of several processes: what it throws ends the others, and says which one it was. A stall
// becomes an ExitError with this code; of a process that is alone (null), too. A mistake on the
// command line becomes a FlagError; the others, which only hear of it, get a CommError.
int run_process(Processes* processes, const std::function<int()>& body,
                int stall_exit_code = kStallExitCode);

// The exit code of a program whose training throws this through run_process() and run_program().
int exit_code_of(const std::exception& error, const TrainFlags& flags);

}  // namespace belfry
