// How much processor time the control groups of this process allow it.
#pragma once
#include <optional>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// In cores: the least quota of the group of this process and the groups around it. Version 2 of
// control groups has it in `cpu.max`, version 1 in `cpu.cfs_quota_us`. None if nothing limits it.
std::optional<double> cpu_quota(FileSystem& files = local_file_system());

}  // namespace belfry
