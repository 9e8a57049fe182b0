// Files that flags name and programs write at the end.
#pragma once
#include <memory>
#include <string>

#include "belfry/framework/file_system.h"

namespace belfry {

// Where to write results, checked before there are any.
class OutputFile {
 public:
  // `flag`, e.g. "--json", is named in errors. Throws IoError if `path` cannot be written. Does not
  // change a file that exists.
  OutputFile(FileSystem& files, std::string flag, std::string path);

  // Replaces the file as a whole, at the end of a link that which it leads to. What is no regular
  // file - a device, a pipe, anything in /dev - is written to as it is, and open from the start.
  void write(const std::string& text);
  bool is_stdout() const { return target_ == Target::kStdout; }

 private:
  enum class Target { kStdout, kStream, kFile };

  FileSystem& files_;
  std::string flag_, path_;
  std::unique_ptr<WritableFile> stream_;
  Target target_;
};

}  // namespace belfry
