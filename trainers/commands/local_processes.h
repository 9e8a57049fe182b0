// Starts the processes of one training on this machine, for `belfry run`.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/commands/child_process.h"
#include "belfry/trainers/commands/command_output.h"
#include "belfry/trainers/commands/forwarded_signals.h"
#include "belfry/trainers/commands/orphan_watch.h"
#include "belfry/trainers/runs/restart_times.h"

namespace belfry {

struct LocalProcessesOptions {
  std::vector<std::string> command;  // of each process
  int size = 1;
  std::string log_directory = "logs";  // for rank_N.log, and rank_N.error.json of one that fails
  std::string heading;                 // of each log, e.g. "start 2, ..."
  bool adds_to_logs = false;           // else they are emptied
  std::optional<RestartMark> restart = {};  // if it is one; `started_at` is set here
  // How long the others have to end by themselves: after one has failed, after the first has ended
  // on a request to end, or after a second request. The time starts over when a process finishes an
  // UnfinishedWrite (framework/base/end_process.h).
  std::chrono::milliseconds patience{8'000};
};

// What all processes of a command share, including those of its restarts.
struct CommandServices {
  ForwardedSignals& signals;
  const OrphanWatch& orphans;
  CommandOutput& output;
};

struct ProcessEnd {
  int rank = 0;
  ChildEnd how;
  std::optional<ErrorFields> error = {};  // that it has left in its error file
  std::string said = {};                  // the text of this error, else the last line it printed
  bool made_to = false;                   // killed by this program, as it did not end by itself

  // Whether it ended in any way other than success, or the exit that follows a signal to end.
  bool failed() const;
};

// Starts one process per rank; they meet by the TCP group of framework/group. Their output goes to
// their logs. The output of rank 0 goes to this process's output, too. If a log can no longer be
// written, a warning says so, and the process continues.
//
// A process may start others, as a script does. Signals are passed on to those that handle them,
// and after a request to end, the object waits for these. Otherwise they are ended when the rank
// that started them fails, or shortly after all ranks have succeeded. None outlives this object.
class LocalProcesses {
 public:
  // Throws IoError if a new log cannot be written or the program cannot be started.
  LocalProcesses(const LocalProcessesOptions& options, const CommandServices& services);
  ~LocalProcesses();
  LocalProcesses(const LocalProcesses&) = delete;
  LocalProcesses& operator=(const LocalProcesses&) = delete;

  // Waits until all have ended, and passes signals on to them; never waits for a reader of their
  // output. Returns how they ended, in that order.
  std::vector<ProcessEnd> finish();
  // Seconds since the first process failed; 0 if none did.
  double seconds_since_failure() const;
  // For people: the processes that were left when all ranks had ended well, and were killed: "4711
  // (mnist) of rank 0". Such a training has left the foreground, and is lost. Empty if a rank
  // failed or was asked to end.
  const std::vector<std::string>& left() const { return left_; }

 private:
  using Clock = std::chrono::steady_clock;
  class RankLog;
  class LastWords;
  struct Process;

  void start(int rank, int port, const std::string& token);
  std::string restart_variable() const;
  // Copies output, passes signals on, and records which processes have ended. Waits until something
  // happens or `most` has passed; only briefly if a slow reader keeps it from copying. Returns
  // whether it copied something.
  bool look(std::chrono::milliseconds most);
  void copy_output(Process& process, int file);
  void collect();
  void note_end(Process& process, const ChildEnd& how);
  void note_end_of_adopted(const ChildEnd& how);
  // To all, or to one and what it has started.
  void pass_on(int signal, const Process* to = nullptr);
  // The rank's process that has started `other`; null if unknown.
  Process* owner_of(pid_t other, pid_t group) const;

  bool is_asked_to_end() const { return services_.signals.asked_to_end() != 0; }
  bool is_asked_to_end(const Process& process) const;
  void note_whether_gone(Process& process);
  bool any_writes() const;
  // Gives the remaining processes a limited time to end, because of `reason`. An earlier reason
  // takes precedence.
  void limit_time(const std::string& reason);
  void limit_time_after_request();
  void kill_late_ones();
  void tell_of_late_ones(std::vector<std::string> late);
  std::vector<std::string> look_for_left();
  void kill_all();

  const LocalProcessesOptions options_;
  const CommandServices services_;
  const ManyOpenFiles open_files_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<ProcessEnd> ends_;
  std::vector<std::string> left_;
  std::optional<Clock::time_point> limited_at_;
  std::string reason_;  // "rank 1 failed"
  Clock::time_point last_moment_ = Clock::time_point::max();
  bool killing_ = false;
};

// The failure that caused the others: a process that was killed by a signal; else one whose error
// does not come from another process; else the first one that failed. Null if all succeeded.
const ProcessEnd* first_failure(const std::vector<ProcessEnd>& ends);

}  // namespace belfry
