// Files that flags name and programs write at the end.
#pragma once
#include <string>

#include "belfry/framework/file_system.h"

namespace belfry {

// Where to write results, checked before there are any.
class OutputFile {
 public:
  // `flag`, e.g. "--json", is named in errors. Throws IoError if `path` cannot be written. Does not
  // change a file that exists.
  OutputFile(FileSystem& files, std::string flag, std::string path);

  // Replaces the file as a whole; devices such as /dev/stdout are written to as they are.
  void write(const std::string& text);
  bool is_stdout() const { return target_ == Target::kStdout; }

 private:
  enum class Target { kStdout, kStream, kFile };

  FileSystem& files_;
  std::string flag_, path_;
  Target target_;
};

}  // namespace belfry
