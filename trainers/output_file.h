// Files that flags name and programs write at the end.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/file_system.h"

namespace belfry {

// Where to write results, checked before there are any.
class OutputFile {
 public:
  // `flag`, e.g. "--json", is named in errors. Throws IoError if `path` cannot be written. Does not
  // change a file that exists.
  OutputFile(FileSystem& files, std::string flag, std::string path);

  // Replaces the file as a whole, at the end of a link that which it leads to. What is there and no
  // regular file - a device, a pipe - is written to as it is, and open from the start.
  void write(const std::string& text);
  bool is_stdout() const { return target_ == Target::kStdout; }

 private:
  enum class Target { kStdout, kStream, kFile };

  FileSystem& files_;
  std::string flag_, path_;
  std::unique_ptr<WritableFile> stream_;
  Target target_;
};

// The files of one run, opened before there is anything to lose. No two of its flags may name one
// file, however they spell it, nor may one file lie in a directory that another flag names.
class Outputs {
 public:
  explicit Outputs(FileSystem& files) : files_(files) {}

  // Null for no path; else borrowed. Throws FlagError, naming both flags, for the file of another
  // one, and whatever OutputFile throws.
  OutputFile* open(std::string_view flag, const std::string& path);
  // For what the run writes by other means, a checkpoint: only refuses what others name.
  void reserve(std::string_view flag, const std::string& path);
  bool on_stdout() const;

 private:
  struct Taken {
    std::string flag, resolved;
  };

  FileSystem& files_;
  std::vector<Taken> taken_;
  std::deque<OutputFile> opened_;
};

}  // namespace belfry
