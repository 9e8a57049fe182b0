// Folders whose files are memory. They outlive the processes that write them, but not the machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
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

// Whether the file `path` is below such a folder of memory_file_system().
bool is_private_in_memory(const std::string& path);

// The bytes of such a file, where they are. The file may be removed meanwhile, but nobody may cut
// it: reading what is gone would end the process. So it is for files that are written once.
class FileInMemory {
 public:
  // Throws NotFoundError or IoError.
  explicit FileInMemory(const std::string& path);
  ~FileInMemory();
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace belfry
