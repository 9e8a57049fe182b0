// Files that flags name and programs write at the end.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// Where to write results, checked before there are any.
class OutputFile {
 public:
  // `flag`, e.g. "--json", is named in errors. Throws IoError if `path` cannot be written. Does not
  // change a file that exists.
  OutputFile(FileSystem& files, std::string flag, std::string path);

  // Replaces the file as a whole, at the end of a link that which it leads to, and keeps its
  // permissions. What FileSystem::open_stream() opens - a descriptor such as /dev/stderr, a device,
  // a pipe - is open from the start and is added to. Throws nothing: a failure costs neither the
  // run nor other files, and is kept as failure().
  void write(const std::string& text);
  // What went wrong; "" if nothing did.
  const std::string& failure() const { return failure_; }
  // Whether the text goes to descriptor 1.
  bool is_stdout() const { return stdout_; }

 private:
  FileSystem& files_;
  std::string flag_, path_, failure_;
  std::unique_ptr<WritableFile> stream_;
  bool stdout_ = false;
};

// The files of one run, opened before there is anything to lose. No two of its flags may name one
// file, however they spell it, nor may one file lie in a directory that another flag names.
class OutputFiles {
 public:
  explicit OutputFiles(FileSystem& files) : files_(files) {}
  // Logs what finish() was not asked for.
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Null for no path; else borrowed. Throws FlagError, naming both flags, for the file of another
  // one, and whatever OutputFile throws.
  OutputFile* open(std::string_view flag, const std::string& path);
  // For what the run writes by other means, a checkpoint: only refuses what others name.
  void reserve(std::string_view flag, const std::string& path);
  bool on_stdout() const;
  // At the end of the run: throws IoError naming each file that could not be written.
  void finish();

 private:
  std::string failures() const;
  struct Taken {
    std::string flag, resolved;
  };

  FileSystem& files_;
  std::vector<Taken> taken_;
  std::deque<OutputFile> opened_;
  bool finished_ = false;
};

}  // namespace belfry
