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
  int local_size = 1;        // those on this machine; `size` if it does not say
  std::string evidence;      // "OMPI_COMM_WORLD_SIZE=4"
  TcpGroupOptions tcp = {};  // for kTcp
};

// MPI, if a launcher of MPI started several processes: OMPI_COMM_WORLD_SIZE, PMI_SIZE, or PMIX_RANK
// with SLURM_STEP_NUM_TASKS. Otherwise TCP, if RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
// set, as by torchrun. SLURM_NTASKS alone means nothing: a single process in a batch script has it.
// The port is BELFRY_PORT, else MASTER_PORT, or the next one if the agent of torchrun holds that
// (TORCHELASTIC_USE_AGENT_STORE=True). The token is BELFRY_TOKEN, or TORCHELASTIC_RUN_ID if that is
// not "none". BELFRY_INSECURE=1 lets processes meet without one. Throws InvalidArgument naming a
// variable with an impossible value, one that is missing although RANK and a WORLD_SIZE above 1 are
// set, or SLURM_STEP_NUM_TASKS if srun has started several tasks that cannot meet.
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
