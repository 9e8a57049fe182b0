// How much memory this process may use, and uses.
#pragma once
#include <cstdint>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// In bytes: the machine's memory, or the limit of this process's control group if that is less.
// `files` reads the limits.
std::int64_t host_memory(FileSystem& files = local_file_system());

// Bytes of memory that this process has now, and its peak so far; 0 where the system does not
// report them.
std::int64_t resident_bytes(FileSystem& files = local_file_system());
std::int64_t peak_resident_bytes(FileSystem& files = local_file_system());

// Seconds since this process started, to a hundredth; 0 where the system does not report it.
double seconds_since_start(FileSystem& files = local_file_system());

// For people: "1.50 GiB".
std::string byte_text(std::int64_t bytes);

}  // namespace belfry
