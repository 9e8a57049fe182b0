#include "belfry/trainers/program/program_processes.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

// The cores that this process may use, as text to compare: "host 1100".
std::string own_cores(const Processes& processes) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::string text = processes.host(processes.rank()) + " ";
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return text;
  for (int core = 0; core < CPU_SETSIZE; ++core) text += CPU_ISSET(core, &mask) ? '1' : '0';
  return text;
}

// Processes that may use the same cores share them; others have all of their own.
int share_of_cores(Processes& processes) {
  const std::string own = own_cores(processes);
  const std::vector<std::string> all = processes.gather(own);
  const auto sharers = static_cast<int>(std::ranges::count(all, own));
  return std::max(1, usable_cores() / sharers);
}

void require_possible(const TrainFlags& flags) {
  const std::pair<const char*, bool> refused[] = {
      {"--check_equivalence", flags.check_equivalence > 0},
      {"--explain", !flags.explain.empty()},
      {"--precision=f16", flags.trainer.precision == Precision::kF16},
      {"--trainer=async", !flags.async().empty()},
      {"a device on a GPU", std::ranges::any_of(flags.trainer.devices, &DeviceSpec::is_gpu)}};
  for (const auto& [what, given] : refused)
    require<FlagError>(!given, what,
                       " is for one process, and this is one of several; --mpi=off "
                       "makes each a training of its own");
  require<FlagError>(
      flags.kind == "replicated" && flags.trainer.aggregation.allreduce == "collective",
      "several processes train with --trainer=replicated --allreduce=collective, not ", flags.kind,
      " and ", flags.trainer.aggregation.allreduce);
}

// Flags that each process may have for itself.
constexpr std::string_view kOwnFlags[] = {"data_dir",        "json",    "memory_report",
                                          "save_checkpoint", "threads", "trace_file"};

std::vector<AgreedItem> agreed_flags(const TrainFlags& flags) {
  std::vector<AgreedItem> items;
  for (const auto& [name, value] : flags.config.members())
    if (std::ranges::find(kOwnFlags, name) == std::end(kOwnFlags))
      items.push_back(
          {"--" + name, value.kind() == Json::Kind::kString ? value.text() : value.str()});
  return items;
}

}  // namespace

std::shared_ptr<Processes> join_processes(const TrainFlags& flags) {
  return join_processes(flags.launcher, flags.watch);
}

TrainFlags of_process(TrainFlags flags, std::shared_ptr<Processes> processes) {
  require_agreement(*processes, agreed_flags(flags));
  require_possible(flags);
  SessionOptions& session = flags.trainer.session;
  if (session.threads == 0) session.threads = share_of_cores(*processes);
  session.processes = std::move(processes);
  if (speaks(flags)) return flags;
  for (std::string* const file :
       {&flags.json, &flags.memory_report, &flags.trace_file, &flags.save_checkpoint})
    file->clear();
  flags.run.traced.reset();
  return flags;
}

bool speaks(const TrainFlags& flags) {
  const std::shared_ptr<Processes>& processes = flags.trainer.session.processes;
  return !processes || processes->rank() == 0;
}

std::vector<DeviceSpec> devices_of_all(const TrainFlags& flags) {
  const std::shared_ptr<Processes>& processes = flags.trainer.session.processes;
  if (!processes) return flags.trainer.devices;
  std::vector<DeviceSpec> all;
  for (int r = 0; r < processes->size(); ++r)
    for (const DeviceSpec& device : flags.trainer.devices)
      all.push_back(device.of_process({r, processes->size()}));
  return all;
}

int run_process(Processes& processes, const std::function<int()>& body) try {
  return body();
} catch (const std::exception& error) {
  try {
    processes.end_others(error.what());
  } catch (const Error& other) {
    log_debug("the other processes cannot be told: ", other.what());
  }
  std::throw_with_nested(Error(
      cat("[rank ", processes.rank(), ", ", processes.host(processes.rank()), "] ", error.what())));
}

}  // namespace belfry
