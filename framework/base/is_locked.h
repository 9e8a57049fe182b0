// Looks at a lock without taking it.
#pragma once
#include <string>

namespace belfry {

// Whether another process, or this one, holds the lock that FileSystem::lock() has taken at
// `path` on the disk. Writes and removes nothing. True for a file that this process may not read,
// and false on a file system without locks.
bool is_locked(const std::string& path);

}  // namespace belfry
