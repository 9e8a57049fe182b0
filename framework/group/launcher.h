// How this process was started together with others, according to its environment.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "belfry/framework/group/processes.h"
#include "belfry/framework/group/tcp_group.h"

namespace belfry {

// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

struct LauncherFound {
  enum class Kind { kNone, kMpi, kTcp };
  Kind kind = Kind::kNone;
  int size = 1;              // processes that it has started
  int local_size = 1;        // those on this machine; if it does not say, one per pod, else `size`
  std::string evidence;      // "OMPI_COMM_WORLD_SIZE=4"
  TcpGroupOptions tcp = {};  // for kTcp
};

// The launcher, by the first of these that fits:
//  1. MPI: OMPI_COMM_WORLD_SIZE, PMI_SIZE, or PMIX_RANK with SLURM_STEP_NUM_TASKS.
//  2. RANK and WORLD_SIZE, as torchrun sets them: TCP, by MASTER_ADDR and MASTER_PORT, or the next
//     port if the agent of torchrun holds that (TORCHELASTIC_USE_AGENT_STORE=True).
//  3. SLURM_STEP_NUM_TASKS: TCP between the tasks of srun. They meet at MASTER_ADDR, or else at the
//     first host of SLURM_STEP_NODELIST; at MASTER_PORT, or else at a port that follows from
//     SLURM_JOB_ID and SLURM_STEP_ID. SLURM_NTASKS means nothing: the shell of a job has it.
//  4. JOB_COMPLETION_INDEX with WORLD_SIZE and MASTER_ADDR: TCP between the pods of an indexed Job
//     of Kubernetes, at MASTER_PORT or 29500.
// BELFRY_PORT sets another port. The token is BELFRY_TOKEN, or TORCHELASTIC_RUN_ID if that is not
// "none", or where one is needed what ~/.belfry/token holds, which only its owner may read.
// BELFRY_INSECURE=1 lets processes meet without one. TORCHELASTIC_RESTART_COUNT or
// SLURM_RESTART_COUNT counts the starts. Throws InvalidArgument naming a variable with an
// impossible value, or one that is missing although others show that there are several processes.
// That is a mistake: another try would fail, too.
LauncherFound find_launcher(const Environment& environment);

// The environment variables which show that a launcher has started several processes, with their
// values: "RANK=1 and WORLD_SIZE=2". "" if there are none. Throws InvalidArgument as
// find_launcher() does for an impossible value.
std::string launcher_variables(const Environment& environment);

// Joins the other processes; null if this one was started alone. Throws CommError if MPI's number
// of processes is not the launcher's.
std::shared_ptr<Processes> join_processes(const LauncherFound& found, WatchOptions watch = {});

// getenv(3).
const char* environment_variable(const char* name);

}  // namespace belfry
