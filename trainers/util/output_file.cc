#include "belfry/trainers/util/output_file.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "belfry/framework/base/advised_error.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/run_files.h"

namespace belfry {
namespace {

// "-" is standard output.
std::string meant(const std::string& path) { return path == "-" ? "/dev/stdout" : path; }

// Calls f(), which looks at the file that `written` names. An IoError becomes an error about the
// flag, with advice.
template <class F>
void as_output(const std::string& written, const F& f) {
  const auto refuse = [&](const char* why, const char* advice) {
    throw FlagError(cat(written, " cannot be written: ", why, advice));
  };
  try {
    f();
  } catch (const AdvisedIoError& error) {
    refuse(error.what(), "");
  } catch (const IoError& error) {
    refuse(error.what(), "; write elsewhere");
  }
}

bool lies_in(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

}  // namespace

OutputFile::OutputFile(FileSystem& files, std::string_view flag, const std::string& path)
    : files_(files), written_(cat(flag, "=", path)), path_(meant(path)) {
  as_output(written_, [&] {
    stream_ = files_.open_stream(path_);
    if (stream_) {
      stdout_ = files_.descriptor(path_) == 1;
      return;
    }
    path_ = files_.resolve(path_);
    const std::string folder = path_.substr(0, std::max<std::size_t>(path_.rfind('/'), 1));
    require<AdvisedIoError>(files_.target_kind(folder) == FileKind::kDirectory,
                            "there is no folder ", folder, "; make it, or write elsewhere");
    require<IoError>(!is_checkpoint(folder, files_), folder,
                     " is a checkpoint, and would be one no longer");
    require<IoError>(!is_run_file(files_, path_), "the run ", folder, " keeps ",
                     path_.substr(path_.rfind('/') + 1), " there");
    const std::string probe = temporary_name(path_);
    files_.create(probe, path_)->close();
    files_.remove(probe);
  });
}

void OutputFile::write(const std::string& text) {
  asked_ = true;
  failure_.clear();
  try {
    if (!stream_) return write_text_file(files_, path_, text);
    if (stdout_) std::fflush(stdout);  // earlier output comes first
    stream_->append(std::as_bytes(std::span(text)));
    stream_->close();
  } catch (const IoError& failure) {
    failure_ = cat(written_, " could not be written: ", failure.what());
  }
}

OutputFiles::~OutputFiles() {
  if (const std::string lost = failures(); !finished_ && !lost.empty()) log_error(lost);
}

OutputFile* OutputFiles::open(std::string_view flag, const std::string& path) {
  if (path.empty()) return nullptr;
  take(Use::kFile, cat(flag, "=", path), meant(path));
  return &opened_.emplace_back(files_, flag, path);
}

void OutputFiles::reserve_input(const std::string& written, const std::string& path) {
  take(Use::kInput, written, path);
}

void OutputFiles::take(Use use, std::string written, const std::string& path) {
  if (path.empty()) return;
  Taken wanted{.use = use, .written = std::move(written), .places = {}};
  const auto resolve = [&] { wanted.places.push_back(files_.resolve(path)); };
  if (use == Use::kInput)
    naming_flag<IoError, IoError>(wanted.written + " cannot be read", resolve);
  else
    as_output(wanted.written, resolve);
  keep(std::move(wanted));
}

void OutputFiles::reserve_run(const std::string& written, const std::string& folder,
                              const std::vector<std::string>& names) {
  Taken wanted{.use = Use::kRun, .written = written, .places = {}};
  as_output(written, [&] {
    for (const std::string& name : names)
      wanted.places.push_back(files_.resolve(cat(folder, "/", name)));
  });
  keep(std::move(wanted));
}

void OutputFiles::keep(Taken wanted) {
  for (const Taken& other : taken_) require_apart(other, wanted);
  taken_.push_back(std::move(wanted));
}

void OutputFiles::require_apart(const Taken& one, const Taken& other) {
  const bool reads = one.use == Use::kInput, other_reads = other.use == Use::kInput;
  const bool runs = one.use == Use::kRun, other_runs = other.use == Use::kRun;
  if ((runs || reads) && (other_runs || other_reads)) return;
  for (const std::string& a : one.places)
    for (const std::string& b : other.places) {
      if (!lies_in(a, b) && !lies_in(b, a)) continue;
      require<FlagError>(!runs && !other_runs, (runs ? other : one).written,
                         " would overwrite files of the run ", (runs ? one : other).written,
                         "; write elsewhere");
      const Taken& input = reads ? one : other;
      require<FlagError>(!reads && !other_reads, (reads ? other : one).written,
                         " would overwrite what ", input.written, " reads; write elsewhere");
      throw FlagError(cat(one.written, " and ", other.written, " would overwrite each other"));
    }
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
