#include "belfry/trainers/runs/line_file.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::pair<OnSaveError, const char*> kOnSaveError[] = {
    {OnSaveError::kStop, "stop"},
    {OnSaveError::kRetry, "retry"},
    {OnSaveError::kContinue, "continue"}};

// The bytes of a file up to its last line break; 0 for no file.
std::uint64_t bytes_of_whole_lines(FileSystem& files, const std::string& path) {
  constexpr std::uint64_t kPart = 1 << 16;
  if (files.target_kind(path) == FileKind::kNone) return 0;
  const auto file = files.open(path);
  std::vector<std::byte> part(kPart);
  for (std::uint64_t end = file->size(); end > 0;) {
    const std::uint64_t begin = end - std::min(end, kPart);
    file->seek(begin);
    std::size_t count = file->read(std::span(part).first(end - begin));
    while (count > 0 && part[count - 1] != std::byte{'\n'}) --count;
    if (count > 0) return begin + count;
    end = begin;
  }
  return 0;
}

}  // namespace

std::string_view name_of(OnSaveError on_error) {
  return std::ranges::find(kOnSaveError, on_error, [](auto& entry) { return entry.first; })->second;
}

OnSaveError find_on_save_error(std::string_view name) {
  for (const auto& [value, known] : kOnSaveError)
    if (name == known) return value;
  throw InvalidArgument(cat("'", shown(name), "' is none of stop, retry and continue"));
}

void LineFile::go_on(std::uint64_t bytes) {
  if (bytes > 0) {
    // exists() would take a file that cannot be looked up for none, and so cut it off.
    const bool is_there = files_.target_kind(path_) != FileKind::kNone;
    const std::uint64_t there = is_there ? files_.open(path_)->size() : 0;
    if (there < bytes)
      log_warning(path_, " has ", there, " bytes where the checkpoint has noted ", bytes,
                  "; the lines of some steps are lost");
    bytes = std::min(bytes, there);
  }
  file_ = files_.extend(path_, bytes);
  bytes_ = bytes;
}

std::string LineFile::name() const { return path_.substr(path_.rfind('/') + 1); }

void LineFile::note(JsonValue& positions) const { positions.set(name(), bytes_); }

void LineFile::go_on(const JsonValue& positions) {
  const JsonValue* const bytes = positions.find(name());
  go_on(bytes ? bytes->unsigned_integer() : bytes_of_whole_lines(files_, path_));
}

void LineFile::add(const std::string& line) {
  if (const std::string warning = add_and_tell(line); !warning.empty()) log_warning(warning);
}

std::string LineFile::add_and_tell(const std::string& line) {
  waiting_ += line;
  try {
    return write();
  } catch (const IoError& error) {
    if (on_error_ == OnSaveError::kStop) throw;
    if (std::exchange(warned_, true)) return "";
    return cat(error.what(), "; the next lines wait until it can be written");
  }
}

// Writes the lines that wait. Returns a warning, or "".
std::string LineFile::write() {
  if (waiting_.empty()) return "";
  try {
    if (!file_) file_ = files_.extend(path_, bytes_);
    file_->append(std::as_bytes(std::span(waiting_)));
  } catch (const IoError&) {
    // Only a part of the lines may be written. The next one begins after the last whole one.
    file_.reset();
    throw;
  }
  bytes_ += waiting_.size();
  waiting_.clear();
  return std::exchange(warned_, false) ? cat(path_, " is written again; no line was lost") : "";
}

void LineFile::sync() {
  if (const std::string warning = write(); !warning.empty()) log_warning(warning);
  if (file_) file_->sync();
}

}  // namespace belfry
