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
  // `flag`, e.g. "--json", and the path as it is given are named in errors. "-" is standard output.
  // Throws FlagError, with a remedy, if `path` cannot be written, or lies in a checkpoint. Does not
  // change a file that exists.
  OutputFile(FileSystem& files, std::string_view flag, const std::string& path);

  // Replaces the file as a whole, at the end of a link that which it leads to, and keeps its
  // permissions. What FileSystem::open_stream() opens - a descriptor such as /dev/stderr, a device,
  // a pipe - is open from the start and is added to. Throws nothing: a failure costs neither the
  // run nor other files, and is kept as failure().
  void write(const std::string& text);
  // Whether write() was called.
  bool asked_to_write() const { return asked_; }
  // What went wrong; "" if nothing did.
  const std::string& failure() const { return failure_; }
  // Whether the text goes to descriptor 1.
  bool is_stdout() const { return stdout_; }

 private:
  FileSystem& files_;
  std::string written_, path_, failure_;  // written_: "--json=FILE"
  std::unique_ptr<WritableFile> stream_;
  bool stdout_ = false, asked_ = false;
};

// The files of one run, opened before there is anything to lose. No two flags may name one file,
// however they spell it, nor may one file lie in a directory that another flag names. No flag may
// name a file to write that the run reads.
class OutputFiles {
 public:
  explicit OutputFiles(FileSystem& files) : files_(files) {}
  // Logs what finish() was not asked for.
  ~OutputFiles();
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Null for no path; else borrowed. Throws FlagError as OutputFile does, and, naming both flags,
  // for the file of another one.
  OutputFile* open(std::string_view flag, const std::string& path);
  // For a checkpoint, which the run writes by other means: only refuses what others name. It has
  // PATH and each PATH<suffix>. It may replace the input at the same path, which it goes on from.
  void reserve(std::string_view flag, const std::string& path,
               const std::vector<std::string>& suffixes = {});
  // For what the run reads, named by `written`, e.g. "--links=FILE"; a folder with all in it.
  void reserve_input(const std::string& written, const std::string& path,
                     const std::vector<std::string>& suffixes = {});
  bool on_stdout() const;
  // Names each file that could not be written so far; "" for none.
  std::string failures() const;
  // At the end of the run: throws IoError of these.
  void finish();

 private:
  enum class Use { kFile, kCheckpoint, kInput };
  struct Taken {
    Use use;
    std::string written;
    std::vector<std::string> places;  // resolved
  };
  void take(Use use, std::string written, const std::string& path,
            const std::vector<std::string>& suffixes);
  static void require_apart(const Taken& one, const Taken& other);

  FileSystem& files_;
  std::vector<Taken> taken_;
  std::deque<OutputFile> opened_;
  bool finished_ = false;
};

}  // namespace belfry
