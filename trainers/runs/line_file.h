// Files of a run directory that grow by lines: stats.jsonl, hashes.jsonl, log.txt.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// What to do if a checkpoint or a line cannot be written. Earlier checkpoints always remain. If the
// last checkpoint of a run could not be written, the run ends with the error.
enum class OnSaveError {
  kStop,      // the run ends with the error
  kRetry,     // it warns, and saves again a minute later; lines wait
  kContinue,  // it warns, and saves again when that is due; lines wait
};
// "stop", "retry" or "continue".
std::string_view name_of(OnSaveError on_error);
// Throws InvalidArgument for any other name.
OnSaveError find_on_save_error(std::string_view name);

// Writes each line by one call. Not for several threads.
class LineFile {
 public:
  LineFile(FileSystem& files, std::string path, OnSaveError on_error)
      : files_(files), path_(std::move(path)), on_error_(on_error) {}

  const std::string& path() const { return path_; }
  // Call it before the first line. Keeps the first `bytes` of the file, cuts off the rest, and
  // appends there. If the file is shorter, because the machine crashed, it warns and appends at its
  // end. Throws IoError.
  void go_on(std::uint64_t bytes);
  // Records for a checkpoint, under the file's name, where the next line begins, in bytes. Lines
  // that wait do not count.
  void note(JsonValue& positions) const;
  // As above, from the place that note() has recorded. If there is none, because the run that saved
  // the checkpoint wrote no such lines, it appends after the last whole line. Throws
  // InvalidArgument for a value that note() cannot give.
  void go_on(const JsonValue& positions);
  // `line` ends with a line break. A line that cannot be written waits, and is tried again with the
  // next line. A warning says so, and another one when it has been written. With kStop it throws
  // IoError.
  void add(const std::string& line);
  // As add(), for callers that must not log: returns the warning, "" for none.
  std::string add_and_tell(const std::string& line);
  bool waits() const { return !waiting_.empty(); }  // whether a line could not be written yet
  // Writes the lines that wait, and syncs the file, so that its lines survive a crash of the
  // machine. Throws IoError.
  void sync();

 private:
  std::string name() const;
  std::string write();

  FileSystem& files_;
  std::string path_;
  OnSaveError on_error_;
  std::unique_ptr<WritableFile> file_;
  std::uint64_t bytes_ = 0;
  std::string waiting_;
  bool warned_ = false;
};

}  // namespace belfry
