#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// A file for results that a flag names. It is checked before there are any results.
class OutputFile {
 public:
  // Errors name `flag`, e.g. "--json", and the path as given. "-" is standard output. Throws
  // FlagError, with a remedy, if `path` cannot be written, or lies in a checkpoint. Does not change
  // a file that exists.
  OutputFile(FileSystem& files, std::string_view flag, const std::string& path);

  // Replaces the whole file, once or several times, and keeps its permissions. If the path is a
  // link, replaces the file to which it leads. A file that FileSystem::open_stream() opens (a
  // descriptor such as /dev/stderr, a device, a pipe) is open from the start, and the text is
  // appended. Throws nothing: failure() keeps the error, so that it costs neither the run nor other
  // files.
  void write(const std::string& text);
  // Whether write() was called.
  bool asked_to_write() const { return asked_; }
  // The error of the last write(); "" if it succeeded.
  const std::string& failure() const { return failure_; }
  // Whether write() replaces a file, so that it may be called again.
  bool replaces() const { return !stream_; }
  // Whether the text goes to descriptor 1.
  bool is_stdout() const { return stdout_; }

 private:
  FileSystem& files_;
  std::string written_, path_, failure_;  // written_: "--json=FILE"
  std::unique_ptr<WritableFile> stream_;
  bool stdout_ = false, asked_ = false;
};

// The files of one run, opened before there is anything to lose. Two flags may not name one file,
// however they spell it. A file may not lie in a directory that another flag names. No flag may
// name a file to write that the run reads.
class OutputFiles {
 public:
  explicit OutputFiles(FileSystem& files) : files_(files) {}
  // Logs the failures if finish() was not called.
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Null for an empty path, else a borrowed pointer. Throws FlagError as OutputFile does. Also
  // throws it, naming both flags, for a file of another flag.
  OutputFile* open(std::string_view flag, const std::string& path);
  // Reserves a file that the run reads, or a folder with everything in it. `written` names it, e.g.
  // "--links=FILE".
  void reserve_input(const std::string& written, const std::string& path);
  // Reserves `names` in the folder of a run, which the run writes by other means. Refuses them if
  // another flag writes one. Files that the run reads may be among them, because it may resume from
  // there.
  void reserve_run(const std::string& written, const std::string& folder,
                   const std::vector<std::string>& names);
  bool on_stdout() const;
  // Names each file that could not be written so far; "" for none.
  std::string failures() const;
  // Call it at the end of the run. Throws IoError with failures(), if there are any.
  void finish();

 private:
  enum class Use { kFile, kInput, kRun };
  struct Taken {
    Use use;
    std::string written;
    std::vector<std::string> places;  // resolved
  };
  void take(Use use, std::string written, const std::string& path);
  void keep(Taken wanted);
  static void require_apart(const Taken& one, const Taken& other);

  FileSystem& files_;
  std::vector<Taken> taken_;
  std::deque<OutputFile> opened_;
  bool finished_ = false;
};

}  // namespace belfry
