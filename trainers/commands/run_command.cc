#include "belfry/trainers/commands/run_command.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <poll.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/launcher.h"
#include "belfry/trainers/commands/local_processes.h"
#include "belfry/trainers/commands/restarts.h"
#include "belfry/trainers/commands/subcommands.h"
#include "belfry/trainers/flags/flag_parser.h"

namespace belfry {
namespace {

constexpr int kMostLocalProcesses = 1024;

struct RunProcessesFlags {
  std::string help;
  int processes = 0;
  int least = 0;  // processes; 0: all
  int restarts = 0;
  std::string log_directory = "logs";
  std::vector<std::string> command;
};

void add_launch_flags(FlagParser& parser, RunProcessesFlags& flags) {
  parser.add_arguments("PROGRAM", flags.command,
                       "behind --: the program and its arguments, the same for all processes");
  parser.add("-n,--processes", flags.processes, 1, kMostLocalProcesses, "P", "how many processes");
  parser.add("--max_restarts", flags.restarts, 0, 1 << 20, "N",
             "when a process fails, start all again, N times at most; with --run_dir they resume "
             "from the newest save [0; with --min_processes P - M]");
  parser.add(
      "--min_processes", flags.least, 1, kMostLocalProcesses, "M",
      "when a process fails, continue with fewer, M at least, to the same bits, and with all "
      "again at the next restart; needs --run_dir and --devices of the program [P]");
  parser.add("--log_dir", flags.log_directory, "DIR",
             "where rank_N.log keeps what rank N prints [logs]");
}

// The first word that is neither a flag nor its value; null for none. All flags here have a value.
const char* first_word(std::span<const char* const> arguments) {
  bool value_follows = false;
  for (const char* const argument : arguments) {
    const bool is_flag = argument[0] == '-';
    if (!is_flag && !value_follows) return argument;
    value_follows = is_flag && !std::strchr(argument, '=');
  }
  return nullptr;
}

RunProcessesFlags parse_run_command(std::span<const char* const> arguments,
                                    const std::string& program) {
  RunProcessesFlags flags;
  FlagParser parser(
      "Starts PROGRAM as P processes of this machine, which train together. Passes signals on to "
      "them. When one fails, names it and ends the others. Put -- before PROGRAM.",
      program);
  add_launch_flags(parser, flags);
  const auto end = std::ranges::find_if(
      arguments, [](const char* argument) { return std::strcmp(argument, "--") == 0; });
  // First, as the flags of PROGRAM are unknown here.
  const char* const word = end == arguments.end() ? first_word(arguments) : nullptr;
  require<FlagError>(!word, "there is no '-- PROGRAM ...' behind the flags; put -- before '",
                     word ? shown(word) : "", "' (see --help)");
  std::vector<const char*> own(arguments.begin(), end);
  // Words after PROGRAM are no flags of this command.
  const bool has_program = end != arguments.end() && std::next(end) != arguments.end();
  if (has_program) own.push_back("PROGRAM");
  flags.help = parser.parse(own);
  if (!flags.help.empty()) return flags;
  require<FlagError>(has_program && flags.command.size() == 1,
                     "there is no '-- PROGRAM ...' behind the flags (see --help)");
  flags.command.assign(std::next(end), arguments.end());
  require<FlagError>(flags.processes > 0, "say by -n P how many processes are to run");
  require<FlagError>(!parser.given("--min_processes") || flags.least < flags.processes,
                     parser.flag("--min_processes").written, " must be below -n ", flags.processes);
  if (flags.least > 0 && !parser.given("--max_restarts"))
    flags.restarts = flags.processes - flags.least;
  return flags;
}

// "rank 1 (process 4711) was killed by SIGKILL; logs/rank_1.log ends: ...".
std::string describe(const ProcessEnd& end, const std::string& log_directory) {
  const char* const signal = end.how.signal == 0 ? nullptr : ::sigabbrev_np(end.how.signal);
  return cat("rank ", end.rank, " (process ", end.how.pid, ") ",
             end.how.signal == 0 ? cat("ended with exit code ", end.how.code)
             : signal            ? cat("was killed by SIG", signal)
                                 : cat("was killed by signal ", end.how.signal),
             "; ", log_directory, "/rank_", end.rank, ".log",
             end.said.empty() ? " has nothing of it" : cat(" ends: ", end.said));
}

// A launcher has started several of this command, each of which would start a training of its own.
void require_one_command() {
  const std::string sign = launcher_variables(environment_variable);
  require<Error>(sign.empty(), "the environment has ", sign,
                 ": a launcher has started several of this command, and each would make a training "
                 "of its own; have it start PROGRAM instead, one per process, or unset ",
                 sign.find(" and ") != sign.npos ? "these variables" : "this variable",
                 " where separate trainings are meant");
}

// Two commands that write to one folder would take each other's logs away.
std::unique_ptr<FileLock> lock_of_logs(const std::string& folder) {
  FileSystem& files = local_file_system();
  files.create_directory(folder);
  std::unique_ptr<FileLock> lock = files.lock(cat(folder, "/run.lock"));
  require<Error>(lock != nullptr, "another 'belfry run' writes to the folder '", folder,
                 "'; wait for its end, or name another folder by --log_dir=DIR");
  return lock;
}

class ProcessRun {
 public:
  explicit ProcessRun(RunProcessesFlags flags)
      : flags_(std::move(flags)),
        restarts_(flags_.command, flags_.processes, flags_.least),
        lock_(lock_of_logs(flags_.log_directory)),
        output_({.kept_in = flags_.log_directory + "/rank_0.log"}) {}

  // Returns the exit code.
  int run() {
    const int code = run_until_it_ends();
    // Readers may be slow. A signal says not to wait for them.
    output_.hurry(signals_.asked_to_end() != 0);
    pollfd signal{signals_.file(), POLLIN, 0};
    while (!output_.is_settled())
      if (::poll(&signal, 1, kPause) > 0 && !signals_.take().empty()) output_.hurry(true);
    if (!output_.has_failed()) return code;
    output_.print_error(
        cat("error: standard output could not be written to its end (is its disk "
            "full?); ",
            flags_.log_directory, "/rank_0.log has what rank 0 printed\n"));
    return std::max(code, 1);
  }

 private:
  static constexpr int kWrongCommandLine = 2;
  static constexpr int kPause = 5;  // ms

  int run_until_it_ends() {
    Start start = restarts_.first();
    for (int number = 0;; ++number) {
      const std::vector<ProcessEnd> ends = run_once(start, number);
      const ProcessEnd* const failure = first_failure(ends);
      if (!left_.empty()) return fail_for_left();
      if (signals_.asked_to_end() != 0 || !failure) return exit_code(ends);
      const std::string what = describe(*failure, flags_.log_directory);
      if (number == flags_.restarts || failure->how.code == kWrongCommandLine) {
        output_.print_error(cat("error: ", what, "\n"));
        return failure->how.code;
      }
      tell(what);
      start = restarts_.next();
      tell_of_restart(number + 1, start);
    }
  }

  std::vector<ProcessEnd> run_once(const Start& start, int number) {
    const std::string heading =
        cat(number == 0 ? "start" : cat("restart ", number), " with ", start.processes,
            start.processes == 1 ? " process: " : " processes: ", join(start.command, " "));
    LocalProcesses processes({.command = start.command,
                              .size = start.processes,
                              .log_directory = flags_.log_directory,
                              .heading = heading,
                              .adds_to_logs = number > 0,
                              .restart = restart_mark(number)},
                             {signals_, orphans_, output_});
    const std::vector<ProcessEnd> ends = processes.finish();
    left_ = processes.left();
    detection_ = processes.seconds_since_failure();
    return ends;
  }

  std::optional<RestartMark> restart_mark(int number) const {
    if (number == 0) return {};
    return RestartMark{.number = number, .detection = detection_};
  }

  // A training that was killed in the background is no success.
  int fail_for_left() {
    output_.print_error(
        cat("error: all ranks of PROGRAM ended, but not what they had started: ", join(left_),
            left_.size() == 1 ? ". It was killed" : ". These were killed",
            ". PROGRAM must not leave the foreground while it trains: let it wait for what it "
            "starts ('wait' in a shell, setsid --wait), or end that itself\n"));
    return 1;
  }

  // The exit code of a run that ended well or by a request.
  static int exit_code(const std::vector<ProcessEnd>& ends) {
    auto other = std::ranges::find_if(
        ends, [](const ProcessEnd& end) { return end.how.code != 0 && !end.failed(); });
    if (other == ends.end())
      other = std::ranges::find_if(ends, [](const ProcessEnd& end) { return end.how.code != 0; });
    return other == ends.end() ? 0 : other->how.code;
  }

  void tell(const std::string& text) { output_.print_error(cat("belfry run: ", text, "\n")); }

  void tell_of_restart(int number, const Start& start) {
    const std::optional<std::int64_t> step = restarts_.saved_step();
    tell(cat("restart ", number, " of ", flags_.restarts, " with ", start.processes, " of ",
             flags_.processes, " processes, ",
             step ? cat("from the save of step ", *step) : "from the start",
             start.why_as_many.empty() ? "" : cat(" (", start.why_as_many, ")")));
  }

  const RunProcessesFlags flags_;
  ForwardedSignals signals_;
  Restarts restarts_;
  OrphanWatch orphans_;  // before the first thread
  std::unique_ptr<FileLock> lock_;
  CommandOutput output_;
  std::vector<std::string> left_;  // LocalProcesses::left()
  double detection_ = 0;           // seconds from the last failure to the end of all processes
};

// Nothing is written before the program is found.
int run_processes(RunProcessesFlags flags) {
  require_one_command();
  flags.command[0] = find_program(flags.command[0]);
  return ProcessRun(std::move(flags)).run();
}

}  // namespace

int run_run_command(std::span<const char* const> arguments, const std::string& program) {
  return subcommand_of(parse_run_command, run_processes)(arguments, program);
}

}  // namespace belfry
