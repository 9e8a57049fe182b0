#include "belfry/trainers/output_file.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "belfry/trainers/flag_values.h"

namespace belfry {
namespace {

bool lies_in(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

}  // namespace

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

OutputFile* Outputs::open(std::string_view flag, const std::string& path) {
  if (path.empty()) return nullptr;
  reserve(flag, path);
  return &opened_.emplace_back(files_, std::string(flag), path);
}

void Outputs::reserve(std::string_view flag, const std::string& path) {
  if (path.empty()) return;
  Taken wanted{.flag = cat(flag, "=", path), .resolved = {}};
  try {
    wanted.resolved = files_.resolve(path);
  } catch (const IoError& failure) {
    throw IoError(cat(wanted.flag, " cannot be written: ", failure.what()));
  }
  for (const Taken& other : taken_)
    require<FlagError>(
        !lies_in(wanted.resolved, other.resolved) && !lies_in(other.resolved, wanted.resolved),
        other.flag, " and ", wanted.flag, " would overwrite each other");
  taken_.push_back(std::move(wanted));
}

bool Outputs::on_stdout() const { return std::ranges::any_of(opened_, &OutputFile::is_stdout); }

}  // namespace belfry
