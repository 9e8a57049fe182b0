// How much memory this process may use.
#pragma once
#include <cstdint>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// Bytes: the machine's memory, or what a control group of the system leaves of it, whichever is
// less. `files` is where the limits of control groups are read.
std::int64_t host_memory(FileSystem& files = local_file_system());

// For people: "1.50 GiB".
std::string byte_text(std::int64_t bytes);

}  // namespace belfry
