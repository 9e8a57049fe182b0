#include "belfry/trainers/util/output_file.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "belfry/framework/base/log.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace {

bool lies_in(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

}  // namespace

OutputFile::OutputFile(FileSystem& files, std::string flag, std::string path)
    : files_(files), flag_(std::move(flag)), path_(std::move(path)) {
  try {
    stream_ = files_.open_stream(path_);
    if (stream_) {
      stdout_ = files_.descriptor(path_) == 1;
      return;
    }
    path_ = files_.resolve(path_);
    const std::string folder = path_.substr(0, std::max<std::size_t>(path_.rfind('/'), 1));
    require<IoError>(files_.target_kind(folder) == FileKind::kDirectory, "there is no folder ",
                     folder);
    const std::string probe = temporary_name(path_);
    files_.create(probe, path_)->close();
    files_.remove(probe);
  } catch (const IoError& failure) {
    throw IoError(cat(flag_, "=", path_, " cannot be written: ", failure.what()));
  }
}

void OutputFile::write(const std::string& text) {
  try {
    if (!stream_) return write_text_file(files_, path_, text);
    if (stdout_) std::fflush(stdout);  // what was printed before comes before
    stream_->append(std::as_bytes(std::span(text)));
    stream_->close();
  } catch (const IoError& failure) {
    failure_ = cat(flag_, "=", path_, " could not be written: ", failure.what());
  }
}

OutputFiles::~OutputFiles() {
  if (const std::string lost = failures(); !finished_ && !lost.empty()) log_error(lost);
}

OutputFile* OutputFiles::open(std::string_view flag, const std::string& path) {
  if (path.empty()) return nullptr;
  reserve(flag, path);
  return &opened_.emplace_back(files_, std::string(flag), path);
}

void OutputFiles::reserve(std::string_view flag, const std::string& path) {
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

std::string OutputFiles::failures() const {
  std::vector<std::string> all;
  for (const OutputFile& file : opened_)
    if (!file.failure().empty()) all.push_back(file.failure());
  return join(all, "; ");
}

void OutputFiles::finish() {
  finished_ = true;
  const std::string lost = failures();
  require<IoError>(lost.empty(), lost);
}

bool OutputFiles::on_stdout() const { return std::ranges::any_of(opened_, &OutputFile::is_stdout); }

}  // namespace belfry
