// Looks at a lock without taking it.
#pragma once
#include <string>

namespace belfry {

// Whether another process, or this one, holds the lock that FileSystem::lock() has made at `path`
// on the disk. Writes and removes nothing. True where that cannot be found out, as for a file that
// this process may not read.
bool is_locked(const std::string& path);

}  // namespace belfry
