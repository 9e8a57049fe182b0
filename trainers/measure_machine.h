// What moving and adding bytes costs here: measured once, and kept.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "belfry/allreduce/machine.h"
#include "belfry/framework/file_system.h"

namespace belfry {

// Times small steps on these devices, which exist: empty ones, chains of launches on one device and
// to and fro between two, additions that touch up to so many bytes on one worker and on all, and a
// shared all-reduce. Takes a few seconds. `threads`: 0 for one per usable core.
Machine measure_machine(std::span<const DeviceSpec> devices, int threads,
                        std::int64_t largest_bytes = 128 << 20);

// Throws InvalidArgument naming a device that is not here to be measured, but only declared.
void require_measurable(std::span<const DeviceSpec> devices);

// $XDG_CACHE_HOME/belfry, or ~/.cache/belfry where that is not an absolute path; "" without either.
std::string cache_directory();

struct MachineOptions {
  int threads = 0;
  std::string links = {};                 // a file to read the machine from instead (parse_machine)
  bool remeasure = false;                 // even if there is a figure in the cache
  std::string cache = cache_directory();  // "": keep nothing
  std::function<Machine(std::span<const DeviceSpec>, int threads)> measure =
      [](auto all, int workers) { return measure_machine(all, workers); };
};

// The machine of the file `links`; else that which an earlier call kept for as many devices and
// threads; else it is measured and kept. What is wrong with the cache is logged, and costs no more
// than the time to measure. Throws InvalidArgument naming --links and the file for what is wrong
// with that, and as require_measurable() does where there is no file.
Machine find_machine(FileSystem& files, std::span<const DeviceSpec> devices,
                     const MachineOptions& options = {});

}  // namespace belfry
