#include "belfry/trainers/program/program_processes.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "belfry/allreduce/all_reduce_spec.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/trainers/core/arithmetic.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/machine/core_shares.h"
#include "belfry/trainers/machine/gpu_shares.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/run_flags.h"
#include "belfry/trainers/util/device_list.h"
#include "belfry/trainers/util/error_file.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/stop_signals.h"

namespace belfry {
namespace {

// The values of all processes, by rank. They travel as text.
template <class T>
std::vector<T> of_all(Processes& processes, const T& own) {
  std::vector<T> all;
  for (const std::string& text : processes.gather(own.str())) all.push_back(T::read(text));
  return all;
}

// Processes that see the same GPUs divide them. A process alone with its GPUs uses all that it
// sees.
void take_share_of_gpus(TrainFlags& flags, Processes& processes) {
  const auto wanted = std::ranges::count_if(flags.trainer.devices, &DeviceSpec::is_gpu);
  if (wanted == 0 || flags.plans()) return;
  const int rank = processes.rank();
  const std::vector<ProcessGpus> all = of_all(processes, own_gpus(processes.host(rank)));
  const bool several_ranks = gpus().backend() && gpus().backend()->nccl().several_ranks;
  const std::vector<int> share = share_of_gpus(all, rank, several_ranks);
  SessionOptions& session = flags.trainer.session;
  require<FlagError>(
      wanted <= std::ssize(share) * session.logical_gpus, "--devices asks for ", wanted,
      " GPUs in each process, and rank ", rank, " on ", processes.host(rank), " has ", share.size(),
      " of ", all[static_cast<std::size_t>(rank)].uuids.size(),
      "; --devices counts the devices of each process (--logical_gpus divides GPUs)");
  session.visible_devices = join(share, ",");
}

ErrorFields with_exit_code(ErrorFields error, const std::function<int()>& stall_code) {
  if (error.kind == ErrorKind::kStalled) error.exit_code = stall_code();
  return error;
}

// The error of a process of several, as this one reports it.
ErrorFields reported(ErrorFields error, int rank, const std::string& host) {
  error.reporter = rank;
  error.reporter_host = host;
  return of_process(std::move(error), rank, host);
}

// Prints the last words of a process that hangs, and ends it.
void abandon(const ProcessGroup& group, const std::exception& failure,
             const std::function<int()>& stall_code) {
  const int rank = group.rank();
  const ErrorFields error =
      reported(with_exit_code(fields_of(failure), stall_code), rank, group.host(rank));
  write_error_file(error);
  end_process(exit_code_of(error), cat("error: ", error_text(error),
                                       "; this process did not end by itself, and ends now\n"));
}

// "rank 1, node7".
std::string process_text(const Processes& processes) {
  return cat("rank ", processes.rank(), ", ", processes.host(processes.rank()));
}

std::string trainers_of_processes() {
  std::vector<std::string> names = trainer_names();
  std::erase_if(names, [](const auto& name) { return !find_trainer(name).spans_processes; });
  return join(names, " or ");
}

// Throws FlagError for flags that several processes can neither run nor plan.
void require_plannable(const TrainFlags& flags) {
  const std::pair<const char*, bool> refused[] = {
      {"--check_equivalence", flags.inspection.check_equivalence > 0},
      {"--explain", !flags.inspection.explain.empty()},
      {"--write_step", !flags.files.step.empty()},
      {"--allreduce=auto", flags.trainer.aggregation.allreduce == "auto"}};
  for (const auto& [what, given] : refused)
    require<FlagError>(!given, what,
                       " is for one process, and this is one of several; --mpi=off "
                       "makes each a training of its own");
  require<FlagError>(find_trainer(flags.kind).spans_processes, "--trainer=", flags.kind,
                     " is for one process, and this is one of several; --mpi=off makes each a "
                     "training of its own, and --trainer=",
                     trainers_of_processes(), " trains with all");
  const std::string& allreduce = flags.trainer.aggregation.allreduce;
  if (allreduce.empty()) return;  // an evaluation alone combines nothing
  const std::string why = make_strategy(allreduce)->refusal_of_processes(flags.trainer.devices);
  require<FlagError>(why.empty(), "--allreduce=", allreduce, ": ", why);
}

void require_possible(const TrainFlags& flags, const Processes& processes) {
  require_plannable(flags);
  const std::string& allreduce = flags.trainer.aggregation.allreduce;
  require<FlagError>(allreduce.empty() || !parse_all_reduce_spec(allreduce).uses("mpi") ||
                         processes.transport() == "MPI",
                     "--allreduce=", allreduce, " adds by MPI, and ", processes.transport(),
                     " carries messages here; start the processes by mpirun, or use collective");
}

// The values of flags, given or chosen, by name: command lines may have them in any order, and may
// write one value in several ways. Configurations lack the flags of one call.
std::map<std::string, std::string> values_by_flag(const TrainFlags& flags) {
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : flags.config.members())
    if (name != kChosen) values["--" + name] = text_of(value);
  for (const auto& [name, value] : flags.config.at(kChosen).members())
    if (name != kProgramMember)
      values.emplace(name == "optimizer" ? "the optimizer" : "--" + name, text_of(value));
  for (const Option<TrainFlags>& option : *flags.table) {
    const std::string name = "--" + option.name;
    const std::string text = option.value ? text_of(option.value(flags)) : "";
    const bool is_of_call = option.scope == Scope::kThisCall && text != "0";  // off is not listed
    if (option.own_process)
      values.erase(name);
    else if (!text.empty() && (is_of_call || (values.contains(name) && option.name != "devices")))
      values[name] = text;
  }
  return values;
}

std::vector<AgreedItem> agreed_flags(const TrainFlags& flags) {
  std::map<std::string, std::string> values = values_by_flag(flags);
  std::vector<AgreedItem> items{agreed_version()};
  // The others follow from these.
  for (const char* const first : {"--trainer", "--run_dir", "--devices"})
    if (const auto value = values.extract(first)) items.push_back({value.key(), value.mapped()});
  // Configurations have the global batch, whichever of the two flags was given.
  values.erase("--global_batch_size");
  items.push_back({"the batch of each device (--batch_size, or --global_batch_size)",
                   std::to_string(flags.trainer.batch_size)});
  for (const auto& [name, value] : values) items.push_back({name, value});
  return items;
}

}  // namespace

std::shared_ptr<Processes> join_processes(const TrainFlags& flags) {
  const LauncherFound& launcher = flags.group.launcher;
  require<FlagError>(launcher.kind != LauncherFound::Kind::kTcp || !lacks_token(launcher.tcp),
                     "the processes meet at ", launcher.tcp.address,
                     ", where others can reach them, and have no token; ", kTokenAdvice,
                     "; or give --insecure if nobody else is in this network");
  WatchOptions watch = flags.group.watch;
  watch.abandon = [flags](const ProcessGroup& group, const std::exception& error) {
    abandon(group, error, [&] { return stall_code(flags); });
  };
  return join_processes(flags.group.launcher, std::move(watch));
}

TrainFlags flags_in_group(TrainFlags flags, std::shared_ptr<Processes> processes) {
  require_agreement(*processes, agreed_flags(flags));
  require_possible(flags, *processes);
  SessionOptions& session = flags.trainer.session;
  const int share = share_of_cores(*processes);  // all processes ask, even with --threads
  if (session.threads == 0) session.threads = share;
  take_share_of_gpus(flags, *processes);
  session.processes = std::move(processes);
  if (speaks(flags)) return flags;
  for (std::string* const file :
       {&flags.files.json, &flags.files.memory_report, &flags.files.metrics})
    file->clear();
  return flags;
}

TrainFlags of_planned_process(TrainFlags flags) {
  if (flags.group.processes > 1) require_plannable(flags);
  flags.trainer.session.planned_place = {0, flags.group.processes};
  return flags;
}

std::string note_of_plan(const TrainFlags& flags, std::string_view allreduce) {
  if (flags.group.processes == 1 || !any_gpu(flags.trainer.devices)) return "";
  return allreduce == "nccl" ? "what NCCL sends to other processes is not counted" : "";
}

bool speaks(const TrainFlags& flags) {
  const std::shared_ptr<Processes>& processes = flags.trainer.session.processes;
  return !processes || processes->rank() == 0;
}

std::vector<DeviceSpec> devices_of_all(const TrainerOptions& options) {
  const int processes = process_place(options.session).size;
  std::vector<DeviceSpec> all;
  for (int r = 0; r < processes; ++r)
    for (const DeviceSpec& device : options.devices)
      all.push_back(device.of_process({r, processes}));
  return all;
}

StallOptions stall_options(const TrainFlags& flags) {
  StallOptions options{.warn = flags.group.watch.stall_warn, .end = flags.group.watch.stall_end};
  if (Processes* const processes = flags.trainer.session.processes.get()) {
    options.process = process_text(*processes);
    options.waits_for_others = [processes] { return processes->has_work(); };
    options.mutual_wait = [processes] { return processes->mutual_wait(); };
  }
  return options;
}

void tell_others_of_stall(const TrainFlags& flags, const StallError& error) {
  if (Processes* const processes = flags.trainer.session.processes.get())
    processes->end_others_in(flags.group.watch.patience, fields_of(error));
}

void end_stalled_process(const TrainFlags& flags, const StallError& error, int code,
                         const std::string& saved) {
  const Processes* const processes = flags.trainer.session.processes.get();
  ErrorFields known = fields_of(error);
  if (processes) known = reported(known, processes->rank(), processes->host(processes->rank()));
  known.kept = saved;
  write_error_file(known);
  end_process(code, cat("error: ", error_text(known), "; this process ends now\n"));
}

int share_of_cores(Processes& processes) {
  const std::vector<ProcessCores> all =
      of_all(processes, own_cores(processes.host(processes.rank())));
  for (const std::string& narrow : narrow_processes(all))
    if (!narrow.empty() && processes.rank() == 0)
      log_warning(narrow, "; mpirun --bind-to none lets it use all");
  return belfry::share_of_cores(all, processes.rank());
}

std::vector<std::string> hosts_of(const Processes* processes) {
  std::vector<std::string> hosts;
  for (int r = 0; processes && r < processes->size(); ++r) hosts.push_back(processes->host(r));
  return hosts;
}

int run_process(Processes* processes, const std::function<int()>& body,
                const std::function<int()>& stall_code) try {
  return body();
} catch (const std::exception& error) {
  ErrorFields known = with_exit_code(fields_of(error), stall_code);
  if (!processes && known.exit_code == 0) throw;
  if (!processes) std::throw_with_nested(Error(std::move(known)));
  const int rank = processes->rank();
  known = reported(std::move(known), rank, processes->host(rank));
  try {
    processes->end_others(known);
  } catch (const Error& other) {
    log_debug("the other processes cannot be told: ", other.what());
  }
  std::throw_with_nested(Error(std::move(known)));
}

int exit_code_of(const std::exception& error, const TrainFlags& flags) {
  return exit_code_of(with_exit_code(fields_of(error), [&] { return stall_code(flags); }));
}

// Each process knows by itself: launchers pass signals on to all, and all have one --max_time.
int stall_code(const TrainFlags& flags) {
  if (const int signal = StopSignals::signal(); signal != 0) return exit_code_of(signal);
  const double most = flags.run.max_seconds;
  return most > 0 && seconds_since_start() >= most ? exit_code_of(SIGTERM)
                                                   : flags.group.stall_exit_code;
}

}  // namespace belfry
