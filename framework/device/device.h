// The devices of a session. Logical CPU devices share the host; each accounts for its own memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/graph/device_spec.h"

namespace belfry {

class GpuBackend;
struct SessionOptions;

// The most devices in a session, and so the most towers in a collective.
inline constexpr int kMostDevices = 1024;

struct Device {
  Device(DeviceSpec name, std::int64_t memory_limit, int space = 0, bool absent = false,
         std::unique_ptr<MemorySource> from = {})
      : spec(std::move(name)),
        memory_space(space),
        declared(absent),
        source(std::move(from)),
        memory(spec.str(), memory_limit, source.get()) {}

  bool on_gpu() const { return memory_space > 0; }
  // Whether this device can read and write the other's memory; assumed for declared devices.
  bool reaches(const Device& other) const;

  DeviceSpec spec;  // with all fields
  // Devices in one memory space exchange tensors without a copy. 0 is the host, shared by all CPU
  // devices. 1 + i is physical GPU i, shared by its logical GPUs.
  int memory_space;
  bool declared;  // only for planning: nothing runs there
  // The backend that drives it, and the number of its physical GPU there; null for CPUs and
  // declared GPUs.
  const GpuBackend* backend = nullptr;
  int gpu = -1;
  std::unique_ptr<MemorySource> source;  // null: the heap
  Allocator memory;
};

// Makes CPUs, then GPUs, each in numeric order of the index. Throws InvalidArgument for impossible
// types, counts, numbers of logical GPUs or visible devices, and for limits of devices that do not
// exist.
std::vector<std::unique_ptr<Device>> make_devices(const SessionOptions& options);

// "GPU 1 does not reach the memory of GPU 0", if that holds for two physical GPUs of the options;
// else "". "" as well if there are no GPUs, or if a dry run declares them.
std::string unreachable_gpus(const SessionOptions& options);

// "Device mapping:" and a line per GPU device, as TensorFlow writes it, or "Device mapping: no
// known devices."; ends with a line break. Logical GPUs name their physical one: "<name> -> device:
// 0, name: NVIDIA H200, pci bus id: 0000:18:00.0, compute capability: 9.0".
std::string device_mapping(const std::vector<std::unique_ptr<Device>>& devices);

// The names of devices, with all fields.
std::vector<std::string> device_names(const std::vector<std::unique_ptr<Device>>& devices);

// "[ /job:localhost/replica:0/task:0/device:CPU:0, ... ]": how errors list them.
std::string list_devices(const std::vector<std::unique_ptr<Device>>& devices);

// Cores that this process may use, according to its affinity mask and its control groups.
int usable_cores();

}  // namespace belfry
