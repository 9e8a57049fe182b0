// Starts the processes of one training on this machine, for `belfry run`.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/commands/child_process.h"
#include "belfry/trainers/commands/forwarded_signals.h"
#include "belfry/trainers/commands/orphan_watch.h"

namespace belfry {

struct LocalProcessesOptions {
  std::vector<std::string> command;  // of each process
  int size = 1;
  std::string log_directory = "logs";  // for rank_N.log
  std::string heading;                 // of each log, e.g. "start 2, ..."
  bool adds_to_logs = false;           // else they are emptied
  // How long other processes have to end by themselves when one has failed. It begins again at the
  // end of an UnfinishedWrite of theirs (framework/base/end_process.h).
  std::chrono::milliseconds patience{8'000};
  const OrphanWatch* orphans = nullptr;  // ends what the processes leave behind; null: nobody
};

struct ProcessEnd {
  int rank = 0;
  ChildEnd how;
  std::string said = {};  // the last line of an error that it printed, else its last line
  bool made_to = false;   // killed by this program, as it did not end by itself

  // Whether it ended neither with success nor as a training does that a signal has asked to end.
  bool failed() const;
};

// Starts one process per rank; they meet by the TCP group of framework/group. Their output goes to
// their logs. The output of rank 0 goes to this process's output, too. None outlives this object. A
// log that cannot be written any more ends with a warning, and the process runs on.
class LocalProcesses {
 public:
  // Throws IoError if a new log cannot be written or the program cannot be started.
  LocalProcesses(const LocalProcessesOptions& options, ForwardedSignals& signals);
  ~LocalProcesses();
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  // Waits until all have ended, and passes signals on to them. Returns how they ended, in that
  // order.
  std::vector<ProcessEnd> finish();

 private:
  using Clock = std::chrono::steady_clock;
  class RankLog;
  class LastWords;
  struct Process;

  void start(int rank, int port, const std::string& token);
  // Copies output, passes signals on and notes who has ended. Waits until something happens or
  // `most` has passed. Returns whether it copied something.
  bool look(std::chrono::milliseconds most);
  void copy_output(Process& process, int file);
  bool any_writes() const;
  void collect();
  void signal_all(int signal);
  void kill_all();

  const LocalProcessesOptions options_;
  ForwardedSignals& signals_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<ProcessEnd> ends_;
  std::optional<Clock::time_point> failed_at_;  // the first of them
  Clock::time_point last_moment_ = Clock::time_point::max();
  bool killing_ = false;
};

// The end that caused the others: a process that a signal killed, else one whose error names no
// other rank, else the first that failed. None if all ended well.
const ProcessEnd* first_failure(const std::vector<ProcessEnd>& ends);

}  // namespace belfry
