// Files of a run directory that grow by lines: stats.jsonl, hashes.jsonl, log.txt.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"

namespace belfry {

// What to do when a checkpoint, or a line, cannot be written. The checkpoints before it remain in
// any case, and a run whose last one could not be written ends with the error.
enum class OnSaveError {
  kStop,      // the run ends with the error
  kRetry,     // it warns, and saves again a minute later; lines wait
  kContinue,  // it warns, and saves again when that is due; lines wait
};
// "stop", "retry" or "continue".
std::string_view name_of(OnSaveError on_error);
// Of such a name; throws InvalidArgument for any other.
OnSaveError find_on_save_error(std::string_view name);

// Writes each line by one call. Not for several threads.
class LineFile {
 public:
  LineFile(FileSystem& files, std::string path, OnSaveError on_error)
      : files_(files), path_(std::move(path)), on_error_(on_error) {}

  const std::string& path() const { return path_; }
  // Before the first line: goes on behind the first `bytes` of the file, and cuts off the rest. If
  // there are fewer, as the machine died, it warns and goes on behind those. Throws IoError.
  void go_on(std::uint64_t bytes);
  // What a checkpoint keeps of the file: adds where its next line begins, in bytes, by its name;
  // lines that wait are not counted.
  void note(Json& positions) const;
  // As above, from where note() has put it; from the start if it did not. Throws InvalidArgument
  // for what note() cannot give.
  void go_on(const Json& positions);
  // `line` ends with a line break. What cannot be written waits, and is tried again with the next
  // line: a warning says so, and another that it is written. With kStop it throws IoError.
  void add(const std::string& line);
  // The same for whoever must not log: returns that warning, "" for none.
  std::string add_and_tell(const std::string& line);
  // Writes what waits. What was written outlives the machine. Throws IoError.
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
