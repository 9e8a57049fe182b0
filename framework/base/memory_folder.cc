#include "belfry/framework/base/memory_folder.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/local_file_impl.h"
#include "belfry/framework/base/require.h"

namespace belfry {

std::string memory_file_system() {
  constexpr char kFolder[] = "/dev/shm";
  struct stat about {};
  const bool is_there = ::stat(kFolder, &about) == 0 && S_ISDIR(about.st_mode);
  return is_there && ::access(kFolder, W_OK | X_OK) == 0 ? kFolder : "";
}

std::int64_t free_bytes_at(const std::string& path) {
  struct statvfs about {};
  if (::statvfs(path.c_str(), &about) != 0) return 0;
  return static_cast<std::int64_t>(about.f_bavail) * static_cast<std::int64_t>(about.f_frsize);
}

// Somebody else may have made a folder of this name, or a link to one.
bool is_private_folder(const std::string& path) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode) &&
         about.st_uid == ::geteuid() && (about.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

void make_private_folder(const std::string& path) {
  const bool is_made = ::mkdir(path.c_str(), S_IRWXU) == 0;
  require<IoError>(is_made || errno == EEXIST, "cannot make the folder ", path, ": ",
                   std::strerror(errno));
  require<IoError>(is_private_folder(path), path,
                   " is no folder that you alone can read; remove it");
}

bool is_private_in_memory(const std::string& path) {
  const std::string root = memory_file_system() + "/";
  return root != "/" && path.starts_with(root) &&
         is_private_folder(path.substr(0, path.find('/', root.size())));
}

FileInMemory::FileInMemory(const std::string& path) {
  const FileToRead file = open_to_read(path);
  const auto size = static_cast<std::size_t>(file.size);
  if (size == 0) return;  // there is nothing to map
  void* const memory =
      ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, file.fd.get(), 0);
  if (memory == MAP_FAILED) fail_file("map", path, errno);
  bytes_ = {static_cast<std::byte*>(memory), size};
}

FileInMemory::~FileInMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace belfry
