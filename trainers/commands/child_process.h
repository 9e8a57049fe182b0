// Programs that a command starts, and that never outlive the command.
#pragma once
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/types.h>

namespace belfry {

// A file descriptor of this process, closed with its owner.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int number) : number_(number) {}
  OpenFile(OpenFile&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~OpenFile();

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close() { *this = OpenFile(); }

 private:
  int number_ = -1;
};

// Reads from `out` get what is written to `in`. Programs that are started do not get the ends.
struct Pipe {
  OpenFile out, in;
};
// Throws IoError.
Pipe make_pipe();

// The program that `name` stands for: the name itself, if it is a path or a folder of PATH has it;
// else the path of a program of that name in the folder of this program. Throws IoError, with where
// it looked, if there is none that can be started.
std::string find_program(const std::string& name);

// While it lives, this process may open as many files as the system lets it.
class ManyOpenFiles {
 public:
  ManyOpenFiles();
  ~ManyOpenFiles();
  ManyOpenFiles(const ManyOpenFiles&) = delete;
  ManyOpenFiles& operator=(const ManyOpenFiles&) = delete;

  // The limit to give to started programs: some close every descriptor up to their limit, which
  // would take long.
  const rlimit& before() const { return before_; }

 private:
  rlimit before_ = {};
};

struct ChildCommand {
  std::vector<std::string> arguments;              // the program first, looked for on PATH
  std::map<std::string, std::string> environment;  // in addition to this process's environment
  std::vector<std::string> unset;                  // variables that it does not get
  sigset_t blocked = {};                           // the signals that it blocks
  std::optional<rlimit> open_files = {};           // its limit; none: that of this process
  bool separate_errors = true;                     // false: what it prints goes where its errors go
};

// A running program, in its own process group. The system kills it when the thread that started it
// ends, however that thread ends.
struct Child {
  pid_t pid = 0;
  OpenFile output, errors;  // the program prints to these
};

// Throws IoError naming the program if it cannot be started.
Child start_child(const ChildCommand& command);

// How a process ended.
struct ChildEnd {
  pid_t pid = 0, group = 0;
  int signal = 0;  // the signal that killed it; 0: it ended by itself
  int code = 0;    // its exit code; 128 + `signal` if that killed it
};

// Returns all children of this process that have ended since the last call, including adopted ones
// (descendants.h). Kills what is left of the group of a child, unless `spares` it. Waits for
// nothing.
std::vector<ChildEnd> collect_children(const std::function<bool(const ChildEnd&)>& spares);

// What a program printed, and how it ended.
struct ChildResult {
  ChildEnd end;
  std::string output, errors;
};

// Starts a program, without input, and waits for its end. Throws as start_child() does.
ChildResult run_to_end(const ChildCommand& command);

}  // namespace belfry
