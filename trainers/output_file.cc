#include "belfry/trainers/output_file.h"

#include <cstdio>
#include <span>

#include "belfry/framework/error.h"

namespace belfry {

OutputFile::OutputFile(FileSystem& files, std::string flag, std::string path)
    : files_(files), flag_(std::move(flag)), path_(std::move(path)), target_(Target::kFile) {
  if (path_ == "/dev/stdout") {
    target_ = Target::kStdout;
    return;
  }
  const FileKind kind = files_.target_kind(path_);
  require<IoError>(kind != FileKind::kDirectory, flag_, "=", path_, " is a directory");
  try {
    if (kind == FileKind::kOther) {
      target_ = Target::kStream;
      stream_ = files_.create(path_);
      return;
    }
    path_ = files_.resolve(path_);
    const std::string probe = temporary_name(path_);
    files_.create(probe)->close();
    files_.remove(probe);
  } catch (const IoError& failure) {
    throw IoError(cat(flag_, "=", path_, " cannot be written: ", failure.what()));
  }
}

void OutputFile::write(const std::string& text) {
  switch (target_) {
    case Target::kFile: return write_text_file(files_, path_, text);
    case Target::kStdout:
      return require<IoError>(std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                                  std::fflush(stdout) == 0,
                              flag_, "=", path_, " cannot be written");
    case Target::kStream: stream_->append(std::as_bytes(std::span(text))); return stream_->close();
  }
}

}  // namespace belfry
