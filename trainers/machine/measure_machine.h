// Measures what moving and adding bytes costs here.
#pragma once
#include <vector>

#include "belfry/allreduce/prediction/machine.h"

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
// seconds. Throws InvalidArgument naming a device that is only declared, for a mixture of CPUs and
// GPUs, and for several logical GPUs on several physical ones.
MachineDescription measure_machine(const MeasuredDevices& here,
                                   std::int64_t largest_bytes = 128 << 20);

}  // namespace belfry
