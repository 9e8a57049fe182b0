// How many cores of the machine this process may use.
#pragma once
#include "belfry/framework/base/file_system.h"

namespace belfry {

// What control groups of the system leave, in cores, rounded up: "cpu.max" of version 2, or the
// quota of version 1. 0: they set no limit. `files` is where the limits are read.
int core_limit(FileSystem& files = local_file_system());

}  // namespace belfry
