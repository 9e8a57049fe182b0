// Measures once what moving and adding bytes costs here, and keeps the figures.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/allreduce/simulation/cluster.h"
#include "belfry/framework/base/file_system.h"

namespace belfry {

// Existing devices to measure, and the options of their sessions.
struct MeasuredDevices {
  std::vector<DeviceSpec> devices;
  int threads = 0;  // 0 for one per usable core
  int logical_gpus = 1;
};

// Times small steps on these devices: empty steps, and chains of launches on one device or
// alternating between two. It also times additions that touch up to `largest_bytes` on one worker
// and on all, a shared all-reduce, and copies between GPUs with their own memories. Takes a few
// seconds.
MachineDescription measure_machine(const MeasuredDevices& here,
                                   std::int64_t largest_bytes = 128 << 20);

// Throws InvalidArgument naming a device that is only declared. Also throws it for a mixture of
// CPUs and GPUs, and for several logical GPUs on several physical ones.
void require_measurable(const MeasuredDevices& here);

// $XDG_CACHE_HOME/belfry, or ~/.cache/belfry if $XDG_CACHE_HOME is no absolute path; "" without
// either.
std::string cache_directory();

struct MachineOptions {
  // A file to read the machine from instead, as parse_machine() or parse_cluster() reads it.
  std::string links = {};
  bool remeasure = false;                 // measure even if the cache has figures
  std::string cache = cache_directory();  // "": keep nothing
  std::function<MachineDescription(const MeasuredDevices&)> measure =
      [](const MeasuredDevices& here) { return measure_machine(here); };
};

// The machine of the file `links`. Without it, the machine that an earlier call kept for the same
// numbers of devices and threads, or for GPUs of the same name. If there is none, measures this
// machine and keeps the figures. Errors of the cache are logged, and cost only the time to measure.
// Throws OptionMistake naming the file if it is wrong; without a file throws InvalidArgument as
// require_measurable() does.
MachineDescription find_machine(FileSystem& files, const MeasuredDevices& here,
                                const MachineOptions& options = {});

// The cluster that such a file describes; nothing if it describes links of pairs of devices.
std::optional<ClusterDescription> find_cluster(FileSystem& files, const std::string& links);

}  // namespace belfry
