#include "belfry/trainers/output_file.h"

#include <cstdio>
#include <filesystem>

#include <unistd.h>

#include "belfry/framework/error.h"

namespace belfry {

OutputFile::OutputFile(FileSystem& files, std::string flag, std::string path)
    : files_(files), flag_(std::move(flag)), path_(std::move(path)), target_(Target::kFile) {
  namespace fs = std::filesystem;
  if (path_ == "/dev/stdout") {
    target_ = Target::kStdout;
    return;
  }
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  require<IoError>(!fs::is_directory(status), flag_, "=", path_, " is a directory");
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    target_ = Target::kStream;
    files_.create(path_)->close();
    return;
  }
  // A link stays; what it leads to is replaced.
  if (const fs::path real = fs::canonical(path_, error); !error) path_ = real.string();
  const std::string probe = cat(path_, ".probe", ::getpid());
  try {
    files_.create(probe)->close();
    files_.remove(probe);
  } catch (const IoError& failure) {
    throw IoError(cat(flag_, "=", path_, " cannot be written: ", failure.what()));
  }
}

void OutputFile::write(const std::string& text) {
  if (target_ == Target::kFile) return write_text_file(files_, path_, text);
  if (target_ == Target::kStdout) {
    std::fputs(text.c_str(), stdout);
    require<IoError>(std::fflush(stdout) == 0, flag_, "=", path_, " cannot be written");
    return;
  }
  const std::unique_ptr<WritableFile> file = files_.create(path_);
  file->append(std::as_bytes(std::span(text)));
  file->close();
}

}  // namespace belfry
