// How much processor time the control groups of this process leave it.
#pragma once
#include <optional>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// In cores, as `cpu.max` of version 2 of control groups says, or `cpu.cfs_quota_us` of version 1:
// the least of the group of this process and the groups around it. None if nothing limits it.
std::optional<double> cpu_quota(FileSystem& files = local_file_system());

}  // namespace belfry
