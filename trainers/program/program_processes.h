// Runs a training program as one of several processes: which one prints, and which cores each uses.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/group/processes.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/runs/stall_watch.h"

namespace belfry {

// Joins the processes that the environment names; null if this process is alone.
std::shared_ptr<Processes> join_processes(const TrainFlags& flags);

// The flags of one of several processes. Rank 0 alone writes files, for --trace_file on behalf of
// all. Without --threads processes of one host share its cores. Throws FlagError for flags that
// several processes do not support yet, and InvalidArgument for flags that differ.
TrainFlags flags_in_group(TrainFlags flags, std::shared_ptr<Processes> processes);

// The flags of a program that runs alone. With --processes they are those of rank 0 of that many
// processes, whose step a dry run plans. Throws FlagError for flags that several processes do not
// support.
TrainFlags of_planned_process(TrainFlags flags);
// A note for a plan of several processes: how gradients that `allreduce` combines get from GPUs to
// other hosts. "" for plans of CPUs.
std::string note_of_plan(const TrainFlags& flags, std::string_view allreduce);

// Whether this process prints and writes: it is rank 0, or runs alone.
bool speaks(const TrainFlags& flags);
// The devices of all processes. Each process has equally many.
std::vector<DeviceSpec> devices_of_all(const TrainerOptions& options);

// The host of each process; empty if this process is alone (null).
std::vector<std::string> hosts_of(const Processes* processes);

// The options of the stall watch, from these flags, in a lone process or one of several. The
// program sets end_run.
StallOptions stall_options(const TrainFlags& flags);
// For end_run: ends the other processes with the same reason. Returns when they have received it,
// or after a short time.
void tell_others_of_stall(const TrainFlags& flags, const StallError& error);
// Ends this process, after printing the error. `saved`: what was saved last, for people; "" for
// nothing.
[[noreturn]] void end_stalled_process(const TrainFlags& flags, const StallError& error, int code,
                                      const std::string& saved);

// The number of workers that this process is to start. Processes that may use the same cores share
// them. All processes call it. Rank 0 warns about processes that may use fewer cores than their
// share.
int share_of_cores(Processes& processes);

// Runs body() in one of several processes. An exception ends the other processes, and its text says
// which process threw. A stall gets the exit code of stall_code(), also if the process is alone
// (null). A mistake in one process is a mistake in all, so all end with the same exit code.
int run_process(
    Processes* processes, const std::function<int()>& body,
    const std::function<int()>& stall_code = [] { return kStallExitCode; });

// The exit code of a run that has stalled. If a signal or --max_time has asked it to end, the code
// is that of the request, so that no launcher restarts the run.
int stall_code(const TrainFlags& flags);

// The exit code of a program whose training throws `error` through run_process() and run_program().
int exit_code_of(const std::exception& error, const TrainFlags& flags);

}  // namespace belfry
