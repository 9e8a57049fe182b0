#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/read_whole.h"
#include "belfry/framework/base/replacing_file.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::string_view kTemporary = ".tmp-";

// Makes a rename to `path` durable. The new content is there either way, so a folder that cannot be
// synced is not a failure.
void sync_folder_of(FileSystem& files, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder =
      slash == path.npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  try {
    files.sync_directory(folder);
  } catch (const IoError& error) {
    if (first_time_logged(cat("no sync: ", folder)))
      log_warning(error.what(), "; what was just written there may not outlive a power cut");
  }
}

// `has`: "" or "at least ".
void require_plausible(const std::string& path, const char* has, std::uint64_t found,
                       std::uint64_t most) {
  require<IoError>(found <= most, path, ": has ", has, found, " bytes, more than the ", most,
                   " that such a file may have");
}

// A file without a size is read part by part.
std::vector<std::byte> read_parts(ReadableFile& file, const std::string& path, std::uint64_t most) {
  constexpr std::uint64_t kPart = 1 << 12;
  std::vector<std::byte> bytes(kPart);
  std::size_t used = file.read(bytes);
  while (used == bytes.size()) {
    require_plausible(path, "at least ", used, most);
    bytes.resize(2 * used);
    used += file.read(std::span(bytes).subspan(used));
  }
  require_plausible(path, "at least ", used, most);
  bytes.resize(used);
  return bytes;
}

}  // namespace

void read_whole(ReadableFile& file, const std::string& path, std::uint64_t most,
                const std::function<std::span<std::byte>(std::uint64_t bytes)>& memory) {
  const std::uint64_t size = file.size();
  require_plausible(path, "", size, most);
  std::span<std::byte> bytes;
  const auto refuse = [&] {
    throw IoError(cat(path, ": there is no memory for its ", size, " bytes"));
  };
  try {
    bytes = memory(size);
  } catch (const std::bad_alloc&) {
    refuse();
  } catch (const OutOfMemory&) {
    refuse();
  }
  const std::size_t used = file.read(bytes);
  std::byte next{};
  const bool grew = used == size && file.read({&next, 1}) > 0;
  require<IoError>(used == size && !grew, path, ": was changed while it was read: it had ", size,
                   " bytes, then ", grew ? "more" : cat(used));
}

std::vector<std::byte> FileSystem::read(const std::string& path, std::uint64_t most) {
  const auto file = open(path);
  if (file->size() == 0) return read_parts(*file, path, most);
  std::vector<std::byte> bytes;
  read_whole(*file, path, most, [&](std::uint64_t size) {
    bytes.resize(size);
    return std::span(bytes);
  });
  return bytes;
}

void remove_tree(FileSystem& files, const std::string& path) {
  if (files.kind(path) == FileKind::kDirectory)
    for (const std::string& name : files.list(path)) remove_tree(files, cat(path, "/", name));
  files.remove(path);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<std::int64_t> number{
      std::chrono::system_clock::now().time_since_epoch().count()};
  return cat(path, kTemporary, ::getpid(), "-", number++);
}

bool is_temporary_name(std::string_view name, std::string_view path) {
  if (!name.starts_with(path)) return false;
  name.remove_prefix(path.size());
  if (!name.starts_with(kTemporary)) return false;
  name.remove_prefix(kTemporary.size());
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  };
  const std::size_t dash = name.find('-');
  return dash != name.npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

void write_text_file(FileSystem& files, const std::string& path, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto stream = files.open_stream(path);
  if (!stream) {
    ReplacingFile file(files, files.resolve(path));
    file.append(bytes);
    return file.replace();
  }
  stream->append(bytes);
  stream->close();
}

ReplacingFile::ReplacingFile(FileSystem& files, std::string path)
    : files_(files),
      path_(std::move(path)),
      temporary_(temporary_name(path_)),
      file_(files.create(temporary_, path_)) {}

ReplacingFile::~ReplacingFile() {
  if (replaced_) return;
  file_.reset();
  try {
    files_.remove(temporary_);
  } catch (const std::exception& error) {  // the error that ended the writing is the one to report
    log_warning("an unfinished file stays behind: ", error.what());
  }
}

void ReplacingFile::append(std::span<const std::byte> bytes) {
  file_->append(bytes);
  size_ += static_cast<std::int64_t>(bytes.size());
}

void ReplacingFile::complete() {
  if (!file_) return;
  file_->sync();
  file_->close();
  file_.reset();
}

void ReplacingFile::replace() {
  complete();
  files_.rename(temporary_, path_);
  replaced_ = true;
  sync_folder_of(files_, path_);
}

void point_link(FileSystem& files, const std::string& path, const std::string& target) {
  const std::string temporary = temporary_name(path);
  files.create_link(temporary, target);
  try {
    files.rename(temporary, path);
  } catch (const IoError&) {
    files.remove(temporary);
    throw;
  }
  sync_folder_of(files, path);
}

}  // namespace belfry
