#include "belfry/framework/group/launcher.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/host_list.h"
#include "belfry/framework/group/mpi_module.h"

namespace belfry {
namespace {

template <class T = int>
T number_in(const Environment& environment, const char* name, T least, T most) {
  const char* const text = environment(name);
  T value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stopped, error] = std::from_chars(text, end, value);
  require(error == std::errc() && stopped == end && value >= least && value <= most,
          "the environment has ", name, "=", text, "; it must be a number from ", least, " to ",
          most);
  return value;
}

constexpr int kMostProcesses = 1 << 16;
constexpr int kMostPort = 65535;
constexpr int kMostCount = 1 << 30;  // of restarts
// Of jobs and steps. Those of a federation of clusters begin with the number of the cluster.
constexpr std::int64_t kMostSlurmId = (std::int64_t{1} << 32) - 1;

// How many tasks srun has started. The shell of a batch job lacks it.
constexpr char kSlurmTasks[] = "SLURM_STEP_NUM_TASKS";
constexpr char kSlurmRank[] = "SLURM_PROCID";
// The number of a pod among those of an indexed Job of Kubernetes.
constexpr char kJobIndex[] = "JOB_COMPLETION_INDEX";

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

int slurm_tasks(const Environment& environment) {
  return environment(kSlurmTasks) ? number_in(environment, kSlurmTasks, 1, kMostProcesses) : 1;
}

// The end of an error about an environment that is half set.
std::string or_alone() {
  return cat(" (a training program trains alone with ", option_name("mpi"), "=off)");
}

bool has_port(const Environment& environment) {
  return environment("BELFRY_PORT") || environment("MASTER_PORT");
}

int port_in(const Environment& environment) {
  if (environment("BELFRY_PORT")) return number_in(environment, "BELFRY_PORT", 1, kMostPort);
  const int port = number_in(environment, "MASTER_PORT", 1, kMostPort);
  const char* const agent = environment("TORCHELASTIC_USE_AGENT_STORE");
  return agent && std::strcmp(agent, "True") == 0 ? port + 1 : port;
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

// The secret that a user keeps for all runs, in a home that all machines see; "" without one.
std::string token_of_home(const Environment& environment) {
  const char* const home = environment("HOME");
  if (!home || !*home) return "";
  const std::string path = cat(home, "/.belfry/token");
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) return "";
  const std::vector<std::byte> bytes = local_file_system().read(path, 1 << 10);
  constexpr unsigned kOfOwner = 0600, kPermissions = 07777;
  const unsigned mode = status.st_mode & kPermissions;
  const auto octal = [](unsigned digits) {
    return cat("0", digits >> 6 & 7U, digits >> 3 & 7U, digits & 7U);
  };
  require((mode & ~kOfOwner) == 0, "the token in ", path, " has mode ", octal(mode),
          ", and others must not read or change it; make another one with mode 0600");
  require(status.st_uid == ::geteuid(), "the token in ", path, " belongs to user ", status.st_uid,
          ", not to user ", ::geteuid(), " of this process");
  std::string token(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  require(!token.empty(), "the file ", path,
          " holds no token; write one: (umask 077; openssl rand -hex 16 > ", path, ")");
  return token;
}

// The secret of a run, or the name that torchrun has for it; "none" is the name of all that have
// none.
std::string token_in(const Environment& environment) {
  for (const char* const name : {"BELFRY_TOKEN", "TORCHELASTIC_RUN_ID"})
    if (const std::string token = environment(name) ? environment(name) : ""; !token.empty())
      return token == "none" ? "" : token;
  return "";
}

// What all launchers have in common. `rank` names the variable of the rank.
TcpGroupOptions tcp_options(const Environment& environment, const char* rank, int size,
                            const std::string& address) {
  require(!address.empty(),
          "the environment has an empty MASTER_ADDR; set it to the host of rank 0, where the "
          "processes meet");
  TcpGroupOptions options{.rank = number_in(environment, rank, 0, size - 1),
                          .size = size,
                          .address = address,
                          .token = token_in(environment)};
  for (const char* const restarts : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"})
    if (options.round == 0 && environment(restarts))
      options.round = number_in(environment, restarts, 0, kMostCount);
  if (environment("BELFRY_INSECURE"))
    options.insecure = number_in(environment, "BELFRY_INSECURE", 0, 1) == 1;
  if (lacks_token(options)) options.token = token_of_home(environment);
  return options;
}

// Each launcher has its own name for it. srun says "2(x3),1" for three hosts of 2 tasks and one
// of 1.
int local_size_in(const Environment& environment, int size, int unsaid) {
  for (const char* const name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"}) {
    const std::string_view text = environment(name) ? environment(name) : "";
    int local = 0;
    std::from_chars(text.data(), text.data() + text.size(), local);
    if (local >= 1) return std::min(local, size);
  }
  return unsaid;
}

LauncherFound found_mpi(const Environment& environment, const char* size_variable) {
  const int size = number_in(environment, size_variable, 1, kMostProcesses);
  const auto kind = size > 1 ? LauncherFound::Kind::kMpi : LauncherFound::Kind::kNone;
  return {.kind = kind,
          .size = size,
          .local_size = local_size_in(environment, size, size),
          .evidence = cat(size_variable, "=", size)};
}

LauncherFound found_tcp(const Environment& environment, const char* size_variable, int unsaid,
                        TcpGroupOptions options) {
  const int size = options.size;
  return {.kind = LauncherFound::Kind::kTcp,
          .size = size,
          .local_size = local_size_in(environment, size, unsaid),
          .evidence = cat(size_variable, "=", size),
          .tcp = std::move(options)};
}

LauncherFound found_ranks(const Environment& environment) {
  const int size = number_in(environment, "WORLD_SIZE", 1, kMostProcesses);
  if (size == 1) return {};
  // Processes that cannot meet would each train alone, and nobody would notice.
  for (const char* const name : {"MASTER_ADDR", "MASTER_PORT"})
    require(environment(name), "the environment has RANK=", environment("RANK"),
            " and WORLD_SIZE=", size, ", but no ", name,
            ", where the processes would meet; set it, or unset RANK for a process that runs alone "
            "(a training program does so with ",
            option_name("mpi"), "=off, too)");
  TcpGroupOptions options = tcp_options(environment, "RANK", size, environment("MASTER_ADDR"));
  options.port = port_in(environment);
  return found_tcp(environment, "WORLD_SIZE", size, std::move(options));
}

// Throws unless a task of srun has these variables.
void require_of_task(const Environment& environment, std::initializer_list<const char*> names,
                     std::string_view advice) {
  for (const char* const name : names)
    require(environment(name), "the environment has ", kSlurmTasks, "=", environment(kSlurmTasks),
            ", but no ", name, "; ", advice, or_alone());
}

// Where the tasks of srun meet. Task 0 is on the first host, unless the tasks are placed by hand.
std::string slurm_host(const Environment& environment) {
  if (const char* const address = environment("MASTER_ADDR")) return address;
  constexpr char kHosts[] = "SLURM_STEP_NODELIST";
  constexpr char kAdvice[] = "set MASTER_ADDR to the host of task 0";
  require_of_task(environment, {kHosts}, kAdvice);
  const std::string_view distribution =
      environment("SLURM_DISTRIBUTION") ? environment("SLURM_DISTRIBUTION") : "";
  require(!distribution.starts_with("arbitrary"),
          "the environment has SLURM_DISTRIBUTION=", distribution,
          ", so task 0 may be on any host; ", kAdvice, or_alone());
  require(!environment("SLURM_HET_SIZE"),
          "the environment has SLURM_HET_SIZE=", environment("SLURM_HET_SIZE"),
          ": in a heterogeneous job ", kHosts, " has the hosts of one part; ", kAdvice, or_alone());
  try {
    return read_host_list(environment(kHosts)).front();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat(kHosts, ": ", error.what(), "; ", kAdvice, or_alone()));
  }
}

// Each job and step of Slurm has ports of its own, below those that the system assigns to sockets
// without one. Jobs that follow each other have different ones.
void choose_slurm_ports(const Environment& environment, TcpGroupOptions& options) {
  constexpr int kFirst = 10'000, kEnd = 32'768, kEach = 8, kStepStride = 97;
  if (has_port(environment)) {
    options.port = port_in(environment);
    return;
  }
  require_of_task(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID"}, "set MASTER_PORT to a free port");
  const auto id = [&](const char* name) {
    return number_in<std::int64_t>(environment, name, 0, kMostSlurmId);
  };
  const std::int64_t job = id("SLURM_JOB_ID"), step = id("SLURM_STEP_ID");
  options.port =
      static_cast<int>(kFirst + (job + kStepStride * step) % ((kEnd - kFirst) / kEach) * kEach);
  options.ports = kEach;
  // Another job with the same token may use one of these ports.
  options.run = cat("job ", job, ".", step);
}

// Tasks of srun that have no MPI.
LauncherFound found_slurm(const Environment& environment) {
  const int size = slurm_tasks(environment);
  require_of_task(environment, {kSlurmRank}, "start all tasks by srun");
  // A script may have set one of these for other programs. Both say more than srun.
  for (const auto& [name, own] : {std::pair("RANK", kSlurmRank), {"WORLD_SIZE", kSlurmTasks}})
    require(!environment(name) || std::strcmp(environment(name), environment(own)) == 0,
            "the environment has ", name, "=", environment(name), ", but ", own, "=",
            environment(own), "; unset ", name, or_alone());
  TcpGroupOptions options = tcp_options(environment, kSlurmRank, size, slurm_host(environment));
  choose_slurm_ports(environment, options);
  return found_tcp(environment, kSlurmTasks, size, std::move(options));
}

// Pods of an indexed Job of Kubernetes. Those of a Job that sets nothing else train alone.
LauncherFound found_kubernetes(const Environment& environment) {
  constexpr int kDefaultPort = 29'500;
  std::vector<std::string_view> given, missing;
  for (const char* const name : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "BELFRY_TOKEN"})
    if (environment(name)) given.push_back(name);
  if (given.empty()) return {};
  const int size =
      environment("WORLD_SIZE") ? number_in(environment, "WORLD_SIZE", 1, kMostProcesses) : 0;
  if (size == 1) return {};
  for (const char* const name : {"WORLD_SIZE", "MASTER_ADDR"})
    if (!environment(name)) missing.push_back(name);
  require(
      missing.empty(), "the environment has ", kJobIndex, "=", environment(kJobIndex), " and ",
      join(given), ", but no ", join(missing, " and no "),
      "; the pods of an indexed Job meet by WORLD_SIZE, their number, and MASTER_ADDR, the name "
      "of pod 0",
      or_alone());
  TcpGroupOptions options = tcp_options(environment, kJobIndex, size, environment("MASTER_ADDR"));
  options.port = has_port(environment) ? port_in(environment) : kDefaultPort;
  return found_tcp(environment, "WORLD_SIZE", 1, std::move(options));
}

// A launcher says both. Without the size, each process but the first is known to have lost it.
void require_size_of_rank(const Environment& environment) {
  for (const auto& [rank, size] : {std::pair(kSlurmRank, kSlurmTasks),
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"}})
    require(
        environment(size) || !environment(rank) ||
            number_in(environment, rank, 0, kMostProcesses) == 0,
        "the environment has ", rank, "=", environment(rank), ", but no ", size,
        ", the number of processes; start all of them by one launcher, and pass its variables on",
        or_alone());
}

// Kubeflow Trainer sets PET_* for torchrun, which is to set the variables of each process.
void require_torchrun_of_pod(const Environment& environment) {
  constexpr char kNodes[] = "PET_NNODES";
  const std::string_view nodes = environment(kNodes) ? environment(kNodes) : "1";
  require(
      nodes == "1" || nodes == "1:1", "the environment has ", kNodes, "=", nodes,
      ", an argument of torchrun, but no RANK and WORLD_SIZE; start the program by torchrun, or "
      "set RANK to PET_NODE_RANK, WORLD_SIZE to ",
      kNodes, ", MASTER_ADDR to PET_MASTER_ADDR and MASTER_PORT to PET_MASTER_PORT", or_alone());
}

LauncherFound found_in(const Environment& environment) {
  if (const char* const size = mpi_size_variable(environment)) return found_mpi(environment, size);
  if (has_ranks(environment)) return found_ranks(environment);
  if (slurm_tasks(environment) > 1) return found_slurm(environment);
  require_size_of_rank(environment);
  if (environment(kJobIndex))
    if (LauncherFound found = found_kubernetes(environment); found.size > 1) return found;
  require_torchrun_of_pod(environment);
  if (!environment(kJobIndex)) require_all_of_launcher(environment);
  return {};
}

}  // namespace

LauncherFound find_launcher(const Environment& environment) try {
  return found_in(environment);
} catch (const InvalidArgument& error) {
  ErrorFields fields = error.fields();
  fields.is_mistake = true;
  throw InvalidArgument(std::move(fields));
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
  const bool several = !mpi && environment("WORLD_SIZE");
  // The variable of the rank, where the size alone may be of something else.
  const char* const rank = several && environment("RANK")      ? "RANK"
                           : several && environment(kJobIndex) ? kJobIndex
                                                               : nullptr;
  const char* const size = mpi                        ? mpi
                           : rank                     ? "WORLD_SIZE"
                           : environment(kSlurmTasks) ? kSlurmTasks
                                                      : nullptr;
  if (!size || number_in(environment, size, 1, kMostProcesses) == 1) return "";
  const std::string text = cat(size, "=", environment(size));
  return rank ? cat(rank, "=", environment(rank), " and ", text) : text;
}

const char* environment_variable(const char* name) { return std::getenv(name); }

}  // namespace belfry
