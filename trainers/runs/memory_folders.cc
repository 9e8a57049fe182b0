#include "belfry/trainers/runs/memory_folders.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <memory>
#include <optional>
#include <random>

#include <unistd.h>

#include "belfry/framework/base/json.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

std::string name_of_user_folders() { return cat("belfry-", ::geteuid(), "-"); }

std::int64_t bytes_in(const std::string& checkpoint) {
  FileSystem& files = local_file_system();
  std::int64_t bytes = 0;
  for (const std::string& name : files.list(checkpoint))
    bytes += static_cast<std::int64_t>(files.open(cat(checkpoint, "/", name))->size());
  return bytes;
}

// A live run holds the lock of its folder.
bool remove_unless_live(const std::string& folder) try {
  FileSystem& files = local_file_system();
  const std::unique_ptr<FileLock> lock = files.lock(cat(folder, "/", kRunLock));
  if (lock) remove_tree(files, folder);
  return lock != nullptr;
} catch (const IoError& error) {
  log_debug("saves in memory stay: ", error.what());
  return false;
}

}  // namespace

std::string new_run_id() {
  constexpr std::size_t kDigits = 8;
  std::random_device random;
  return hex(random(), kDigits) + hex(random(), kDigits);
}

std::string run_id_of(const std::string& run_dir, FileSystem& files) try {
  const std::optional<JsonValue> config = run_config(files, run_dir);
  const JsonValue* const id = config ? config->at(kChosen).find(kRunId) : nullptr;
  const std::string text = id ? id->text() : "";
  const bool is_id = std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c); });
  return is_id ? text : "";
} catch (const Error&) {
  return "";
}

std::string memory_folder_of(const std::string& id, const std::string& root) {
  return id.empty() || root.empty() ? "" : cat(root, "/", name_of_user_folders(), id);
}

std::map<std::int64_t, std::int64_t> saves_in_memory(const std::string& folder) try {
  std::map<std::int64_t, std::int64_t> saves;
  if (!is_private_folder(folder)) return saves;
  for (const std::int64_t step : checkpoints_in(local_file_system(), folder))
    saves[step] = bytes_in(checkpoint_in(folder, step));
  return saves;
} catch (const IoError&) {
  return {};
}

std::int64_t bytes_of_saves(const std::string& folder) try {
  FileSystem& files = local_file_system();
  const std::string saves = cat(folder, "/checkpoints");
  if (!is_private_folder(folder) || files.kind(saves) != FileKind::kDirectory) return 0;
  std::int64_t bytes = 0;
  for (const std::string& name : files.list(saves))
    if (const std::string path = cat(saves, "/", name); files.kind(path) == FileKind::kDirectory)
      bytes += bytes_in(path);
  return bytes;
} catch (const Error&) {
  return 0;
}

void remove_memory_saves(const std::string& id) {
  if (const std::string folder = memory_folder_of(id); is_private_folder(folder))
    remove_unless_live(folder);
}

void remove_damaged_save(const std::string& path) try {
  FileSystem& files = local_file_system();
  const std::string gone = temporary_name(path);
  files.rename(path, gone);
  remove_tree(files, gone);
} catch (const Error& error) {  // another process of this host has removed it
  log_debug("a damaged save in memory: ", error.what());
}

void remove_dead_saves(const std::string& own) try {
  constexpr std::int64_t kMostSeconds = 24 * 3600;
  FileSystem& files = local_file_system();
  const std::string root = memory_file_system();
  for (const std::string& name : files.list(root)) {
    const std::string folder = cat(root, "/", name);
    if (!name.starts_with(name_of_user_folders()) || folder == own || !is_private_folder(folder))
      continue;
    const std::string written = cat(folder, "/checkpoints");
    const std::int64_t age =
        std::time(nullptr) - files.modified(files.exists(written) ? written : folder);
    if (age < kMostSeconds) continue;
    if (remove_unless_live(folder))
      log_info("removed ", folder, ": saves in memory of a run that was killed ", age / 3600,
               " hours ago");
  }
} catch (const IoError& error) {
  log_debug("saves of dead runs in memory stay: ", error.what());
}

}  // namespace belfry
