// Where a host keeps saves of runs in memory, and how they are removed.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/memory_folder.h"

namespace belfry {

// The member of `chosen` in config.json that names a run, wherever its directory is.
inline constexpr char kRunId[] = "run_id";
std::string new_run_id();
// The id of the run in a directory; "" if it has none.
std::string run_id_of(const std::string& run_dir, FileSystem& files = local_file_system());

// Where a host keeps the saves of a run, as a run directory does: /dev/shm/belfry-<user>-<id>. ""
// without an id, or if the machine has no files in memory (`root`).
std::string memory_folder_of(const std::string& id, const std::string& root = memory_file_system());

// The bytes of each save in such a folder, by step. A folder that cannot be read has none.
std::map<std::int64_t, std::int64_t> saves_in_memory(const std::string& folder);
// The bytes of all saves in such a folder, and of what is left of a save that was not finished.
std::int64_t bytes_of_saves(const std::string& folder);

// Removes what this host has in memory of a run, unless that is live.
void remove_memory_saves(const std::string& id);
// Removes a save that cannot be read, so that the next start takes that of another host, or the one
// before it.
void remove_damaged_save(const std::string& path);
// Removes the saves of this user's runs that were killed and not started again for a day, but for
// those in the folder `own`.
void remove_dead_saves(const std::string& own);

}  // namespace belfry
