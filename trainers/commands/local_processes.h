// The processes of one training on this machine, as `belfry run` starts them.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/commands/child_process.h"
#include "belfry/trainers/commands/forwarded_signals.h"

namespace belfry {

struct LocalProcessesOptions {
  std::vector<std::string> command;  // of each process
  int size = 1;
  std::string log_directory = "logs";  // for rank_N.log
  std::string heading;                 // of each log, e.g. "start 2, ..."
  bool adds_to_logs = false;           // else they are emptied
  // How long the others have to end by themselves when one has failed.
  std::chrono::milliseconds patience{8'000};
};

struct ProcessEnd {
  int rank = 0;
  ChildEnd how;
  std::string said = {};  // the last line of an error that it printed, else its last line
  bool made_to = false;   // killed by this program, as it did not end by itself

  // Neither success, nor what a training returns that a signal has asked to end.
  bool failed() const;
};

// Starts one process per rank, which meet by the TCP group of framework/group. What they print goes
// to their logs; what rank 0 prints, to this process's output, too. None outlives it.
class LocalProcesses {
 public:
  // Throws IoError if a log cannot be written or the program cannot be started.
  LocalProcesses(const LocalProcessesOptions& options, ForwardedSignals& signals);
  ~LocalProcesses();
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  // Waits until all have ended, and passes signals on to them. How they ended, the first one first.
  std::vector<ProcessEnd> finish();

 private:
  using Clock = std::chrono::steady_clock;
  class LastWords;
  struct Process;

  void start(int rank, int port, const std::string& token);
  // Copies what comes out, passes signals on and notes who has ended; waits until something happens
  // or `most` has passed. Whether something was copied.
  bool look(std::chrono::milliseconds most);
  void copy_output(Process& process, int file);
  void collect();
  void signal_all(int signal);
  void kill_all();

  const LocalProcessesOptions options_;
  ForwardedSignals& signals_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<ProcessEnd> ends_;
  Clock::time_point last_moment_ = Clock::time_point::max();
  bool killing_ = false;
};

// The end that caused the others: of a process that a signal killed, else of one whose error does
// not name another rank, else the first that failed. None if all ended well.
const ProcessEnd* first_failure(const std::vector<ProcessEnd>& ends);

}  // namespace belfry
