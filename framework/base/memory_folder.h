// Folders whose files are memory. They outlive the processes that write them, but not the machine.
#pragma once
#include <cstdint>
#include <string>

namespace belfry {

// Where this machine has such files; "" if it has none.
std::string memory_file_system();
// How many bytes can still be written below `path`; 0 if that is not known.
std::int64_t free_bytes_at(const std::string& path);

// Makes a folder that nobody but this user can read, or takes the one that is there. Throws IoError
// if that is not such a folder.
void make_private_folder(const std::string& path);
// Whether there is such a folder.
bool is_private_folder(const std::string& path);

}  // namespace belfry
