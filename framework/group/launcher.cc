#include "belfry/framework/group/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/mpi_module.h"

namespace belfry {
namespace {

int number_in(const Environment& environment, const char* name, int least, int most) {
  const char* const text = environment(name);
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, value);
  require(error == std::errc() && stopped == end && value >= least && value <= most,
          "the environment has ", name, "=", text, "; it must be a number from ", least, " to ",
          most);
  return value;
}

constexpr int kMostProcesses = 1 << 16;

// How many tasks srun has started. The shell of a batch job lacks it.
constexpr char kSlurmTasks[] = "SLURM_STEP_NUM_TASKS";

// The variable in which an MPI launcher says how many processes it has started; null: none has.
const char* mpi_size_variable(const Environment& environment) {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (environment(name)) return name;
  return environment("PMIX_RANK") && environment(kSlurmTasks) ? kSlurmTasks : nullptr;
}

// Whether torchrun, or something that acts like it, has said how many processes there are.
bool has_ranks(const Environment& environment) {
  return environment("RANK") && environment("WORLD_SIZE");
}

int port_in(const Environment& environment) {
  constexpr int kMostPort = 65535;
  if (environment("BELFRY_PORT")) return number_in(environment, "BELFRY_PORT", 1, kMostPort);
  const int port = number_in(environment, "MASTER_PORT", 1, kMostPort);
  const char* const agent = environment("TORCHELASTIC_USE_AGENT_STORE");
  return agent && std::strcmp(agent, "True") == 0 ? port + 1 : port;
}

void require_lone_task(const Environment& environment) {
  const int tasks =
      environment(kSlurmTasks) ? number_in(environment, kSlurmTasks, 1, kMostProcesses) : 1;
  require(tasks == 1, "the environment has ", kSlurmTasks, "=", tasks, ": srun has started ", tasks,
          " tasks, but gave them no MPI by which they could meet; start them by 'srun --mpi=pmix', "
          "or give each RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (a training program trains "
          "alone in each task with ",
          option_name("mpi"), "=off)");
}

// If an address or port is set and only one of RANK and WORLD_SIZE, a launcher has set both, and
// the other was lost.
void require_all_of_launcher(const Environment& environment) {
  const auto says_alone = [&](std::string_view given) {
    return given == "WORLD_SIZE" && std::string_view(environment("WORLD_SIZE")) == "1";
  };
  for (const auto& [given, missing] : {std::pair("RANK", "WORLD_SIZE"), {"WORLD_SIZE", "RANK"}})
    for (const char* const place : {"MASTER_ADDR", "MASTER_PORT"})
      require(!environment(given) || !environment(place) || says_alone(given),
              "the environment has ", given, "=", environment(given), " and ", place, "=",
              environment(place), ", but no ", missing,
              ", without which this process would train alone; set it, or unset ", given,
              " for a process that runs alone (a training program does so with ",
              option_name("mpi"), "=off, too)");
}

// Processes that cannot meet would each train alone, and nobody would notice.
void require_meeting_place(const Environment& environment) {
  if (!has_ranks(environment)) {
    require_all_of_launcher(environment);
    return require_lone_task(environment);
  }
  const int size = number_in(environment, "WORLD_SIZE", 1, kMostProcesses);
  for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"})
    require(size == 1 || environment(name), "the environment has RANK=", environment("RANK"),
            " and WORLD_SIZE=", size, ", but no ", name,
            ", where the processes would meet; set it, or unset RANK for a process that runs alone "
            "(a training program does so with ",
            option_name("mpi"), "=off, too)");
}

// The secret of a run, or the name that torchrun has for it; "none" is the name of all that have
// none.
std::string token_in(const Environment& environment) {
  for (const char* const name : {"BELFRY_TOKEN", "TORCHELASTIC_RUN_ID"})
    if (const std::string token = environment(name) ? environment(name) : ""; !token.empty())
      return token == "none" ? "" : token;
  return "";
}

TcpGroupOptions tcp_options(const Environment& environment, int size) {
  constexpr const char* kRestartCount = "TORCHELASTIC_RESTART_COUNT";
  constexpr int kMostRestarts = 1 << 30;
  require(*environment("MASTER_ADDR") != '\0',
          "the environment has an empty MASTER_ADDR; set it to the host of rank 0, where the "
          "processes meet");
  TcpGroupOptions options{.rank = number_in(environment, "RANK", 0, size - 1),
                          .size = size,
                          .address = environment("MASTER_ADDR"),
                          .port = port_in(environment),
                          .token = token_in(environment)};
  if (environment(kRestartCount))
    options.round = number_in(environment, kRestartCount, 0, kMostRestarts);
  if (environment("BELFRY_INSECURE"))
    options.insecure = number_in(environment, "BELFRY_INSECURE", 0, 1) == 1;
  return options;
}

// Each launcher has its own name for it. srun says "2(x3),1" for three hosts of 2 tasks and one
// of 1.
int local_size_in(const Environment& environment, int size) {
  for (const char* const name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"}) {
    const std::string_view text = environment(name) ? environment(name) : "";
    int local = 0;
    std::from_chars(text.data(), text.data() + text.size(), local);
    if (local >= 1) return std::min(local, size);
  }
  return size;
}

}  // namespace

LauncherFound find_launcher(const Environment& environment) {
  if (const char* const name = mpi_size_variable(environment)) {
    const int size = number_in(environment, name, 1, kMostProcesses);
    const auto kind = size > 1 ? LauncherFound::Kind::kMpi : LauncherFound::Kind::kNone;
    return {.kind = kind,
            .size = size,
            .local_size = local_size_in(environment, size),
            .evidence = cat(name, "=", size)};
  }
  require_meeting_place(environment);
  for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    if (!environment(name)) return {};
  const int size = number_in(environment, "WORLD_SIZE", 1, kMostProcesses);
  if (size == 1) return {};
  return {.kind = LauncherFound::Kind::kTcp,
          .size = size,
          .local_size = local_size_in(environment, size),
          .evidence = cat("WORLD_SIZE=", size),
          .tcp = tcp_options(environment, size)};
}

std::shared_ptr<Processes> join_processes(const LauncherFound& found, WatchOptions watch) {
  switch (found.kind) {
    case LauncherFound::Kind::kNone: return nullptr;
    case LauncherFound::Kind::kTcp:
      return std::make_shared<Processes>([tcp = found.tcp] { return connect_tcp(tcp); }, watch);
    case LauncherFound::Kind::kMpi: break;
  }
  auto processes = std::make_shared<Processes>(open_mpi, watch);
  require<CommError>(
      processes->size() == found.size, "the environment says ", found.evidence, ", but MPI knows ",
      processes->size(),
      " processes: the launcher and libbelfry_mpi.so are of two MPIs; take the mpirun "
      "of the MPI that Belfry was built with");
  return processes;
}

std::string launcher_variables(const Environment& environment) {
  const char* const mpi = mpi_size_variable(environment);
  const char* const size = mpi                        ? mpi
                           : has_ranks(environment)   ? "WORLD_SIZE"
                           : environment(kSlurmTasks) ? kSlurmTasks
                                                      : nullptr;
  if (!size || number_in(environment, size, 1, kMostProcesses) == 1) return "";
  const std::string text = cat(size, "=", environment(size));
  return mpi || !has_ranks(environment) ? text : cat("RANK=", environment("RANK"), " and ", text);
}

const char* environment_variable(const char* name) { return std::getenv(name); }

}  // namespace belfry
