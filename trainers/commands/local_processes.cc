#include "belfry/trainers/commands/local_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <set>
#include <string_view>

#include <poll.h>
#include <unistd.h>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/trainers/util/error_file.h"
#include "belfry/trainers/util/stop_signals.h"

namespace belfry {
namespace {

// Whether there is such a process; with -N, one in the group N.
bool process_exists(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int word = 0; word < 4; ++word) token += hex(random(), 8);
  return token;
}

std::unique_ptr<WritableFile> open_log(const std::string& path, bool adds) {
  FileSystem& files = local_file_system();
  if (!adds || files.kind(path) == FileKind::kNone) return files.create(path);
  const std::uint64_t size = files.open(path)->size();
  return files.extend(path, size);
}

// Whether a process holds the lock by which it says that it writes. Removes what one has left that
// was killed.
bool is_locked(const std::string& path) try {
  FileSystem& files = local_file_system();
  return files.exists(path) && !files.lock(path);
} catch (const Error&) {
  return false;
}

// The signal to send to a process so that it does what `signal` requests; 0: it handles none.
// Programs that a shell starts in the background ignore SIGINT. A fork of a process is left alone,
// because its parent handles the signal.
int handled_for(const Descendant& process, int signal) {
  if (process.is_copy) return 0;
  if (process.catches(signal)) return signal;
  return signal == SIGINT && process.ignores(SIGINT) && process.catches(SIGTERM) ? SIGTERM : 0;
}

bool asks_to_end(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGUSR1;
}

// Variables of launchers around this one, which did not start these processes.
const std::vector<std::string> kOtherLaunchers = {"OMPI_COMM_WORLD_SIZE",
                                                  "PMI_SIZE",
                                                  "PMIX_RANK",
                                                  "SLURM_STEP_NUM_TASKS",
                                                  "TORCHELASTIC_USE_AGENT_STORE",
                                                  "TORCHELASTIC_RUN_ID",
                                                  "TORCHELASTIC_RESTART_COUNT",
                                                  "BELFRY_PORT",
                                                  RestartMark::kVariable};

bool blames_another(const ProcessEnd& end) {
  return end.error && end.error->rank >= 0 && end.error->rank != end.rank;
}

// Whether the run had stalled, and one that was asked to end has said so: then it did not fail.
bool ended_by_request(const ProcessEnd& end, const std::vector<ProcessEnd>& ends) {
  if (!end.error || end.error->kind != ErrorKind::kStalled || !blames_another(end)) return false;
  const auto other = std::ranges::find(ends, end.error->rank, &ProcessEnd::rank);
  return other != ends.end() && other->how.code != 0 && !other->failed();
}

}  // namespace

// What a process prints, in a file.
class LocalProcesses::RankLog {
 public:
  explicit RankLog(CommandOutput& output) : output_(output) {}
  // Throws IoError if a new log cannot be written.
  void begin(const std::string& path, bool adds, const std::string& heading) {
    try {
      file_ = open_log(path, adds);
      file_->append(std::as_bytes(std::span(heading)));
    } catch (const IoError& error) {
      if (!adds) throw;
      end(error);
    }
  }
  void add(std::string_view text) try {
    if (file_) file_->append(std::as_bytes(std::span(text)));
  } catch (const IoError& error) {
    end(error);
  }

 private:
  // A run of a week is worth more than its log.
  void end(const IoError& error) {
    file_.reset();
    output_.print_error(
        cat("belfry run: ", error.what(), "; the training continues, and this log ends here\n"));
  }

  CommandOutput& output_;
  std::unique_ptr<WritableFile> file_;
};

// Keeps the last line.
class LocalProcesses::LastWords {
 public:
  void add(std::string_view text) {
    for (const char c : text)
      if (c == '\n')
        end_line();
      else if (line_.size() < kMost)
        line_ += c;
  }
  std::string take() {
    end_line();
    return last_;
  }

 private:
  static constexpr std::size_t kMost = 4096;

  void end_line() {
    if (!line_.empty()) last_ = std::exchange(line_, {});
  }

  std::string line_, last_;
};

struct LocalProcesses::Process {
  Process(int number, CommandOutput& output) : rank(number), log(output) {}

  const int rank;
  Child child;
  bool lives = true;
  bool is_asked = false;                           // to end, if the others are not
  bool gone = false;                               // also what has to end after a request to end:
  std::vector<pid_t> heirs;                        // that handle the request, as a training does
  std::optional<Clock::time_point> left_by_heirs;  // when they had all ended
  RankLog log;
  std::string write_lock;  // of kUnfinishedVariable
  std::string error_file;  // of kErrorFileVariable
  LastWords words;
};

bool ProcessEnd::failed() const {
  const bool asked =
      how.signal == 0 && (how.code == exit_code_of(SIGINT) || how.code == exit_code_of(SIGTERM));
  return how.code != 0 && !asked;
}

LocalProcesses::LocalProcesses(const LocalProcessesOptions& options,
                               const CommandServices& services)
    : options_(options), services_(services) {
  local_file_system().create_directory(options.log_directory);
  const int port = free_port();
  const std::string token = random_token();
  try {
    for (int rank = 0; rank < options.size; ++rank) start(rank, port, token);
  } catch (...) {
    kill_all();
    throw;
  }
}

LocalProcesses::~LocalProcesses() {
  kill_all();
  for (const auto& process : processes_) is_locked(process->write_lock);  // and remove it
}

void LocalProcesses::start(int rank, int port, const std::string& token) {
  auto process = std::make_unique<Process>(rank, services_.output);
  const std::string files =
      cat(local_file_system().resolve(options_.log_directory), "/rank_", rank);
  process->write_lock = files + ".writing";
  process->error_file = files + ".error.json";
  local_file_system().remove(process->error_file);  // of a start before
  process->log.begin(cat(options_.log_directory, "/rank_", rank, ".log"), options_.adds_to_logs,
                     cat("# ", options_.heading, "\n"));
  const std::string size = std::to_string(options_.size);
  std::map<std::string, std::string> environment{{"RANK", std::to_string(rank)},
                                                 {"LOCAL_RANK", std::to_string(rank)},
                                                 {"WORLD_SIZE", size},
                                                 {"LOCAL_WORLD_SIZE", size},
                                                 {"MASTER_ADDR", "127.0.0.1"},
                                                 {"MASTER_PORT", std::to_string(port)},
                                                 {"BELFRY_TOKEN", token},
                                                 {kUnfinishedVariable, process->write_lock},
                                                 {kErrorFileVariable, process->error_file}};
  environment[OrphanWatch::kVariable] = services_.orphans.value(rank);
  if (options_.restart) environment[RestartMark::kVariable] = restart_variable();
  process->child = start_child({.arguments = options_.command,
                                .environment = std::move(environment),
                                .unset = kOtherLaunchers,
                                .blocked = services_.signals.before(),
                                .open_files = open_files_.before(),
                                .separate_errors = rank == 0});
  processes_.push_back(std::move(process));
}

std::string LocalProcesses::restart_variable() const {
  RestartMark mark = *options_.restart;
  mark.started_at = seconds_since_1970();
  return mark.str();
}

double LocalProcesses::seconds_since_failure() const {
  return limited_at_ ? std::chrono::duration<double>(Clock::now() - *limited_at_).count() : 0;
}

std::vector<ProcessEnd> LocalProcesses::finish() {
  const auto most = std::min(std::chrono::milliseconds(1'000), options_.patience / 4);
  while (!std::ranges::all_of(processes_, &Process::gone)) {
    look(most);
    for (const auto& process : processes_) note_whether_gone(*process);
    limit_time_after_request();
    kill_late_ones();
  }
  left_ = look_for_left();
  services_.orphans.end_all();  // so that nobody prints any more
  while (look(std::chrono::milliseconds(0)) || services_.output.is_full()) {
  }
  for (ProcessEnd& end : ends_) {
    Process& process = *processes_[static_cast<std::size_t>(end.rank)];
    end.error = read_error_file(process.error_file);
    end.said = end.error ? cat("error: ", error_text(*end.error)) : process.words.take();
    std::ranges::replace(end.said, '\n', ' ');
  }
  return ends_;
}

// They may be about to end, as what reads the last output of a script.
std::vector<std::string> LocalProcesses::look_for_left() {
  constexpr std::chrono::milliseconds kMoment{20}, kForTheRest{1'000};
  const bool all_well =
      std::ranges::all_of(ends_, [](const ProcessEnd& end) { return end.how.code == 0; });
  if (!all_well || is_asked_to_end()) return {};
  const Clock::time_point last = Clock::now() + kForTheRest;
  while (!services_.orphans.left().empty() && Clock::now() < last) look(kMoment);
  std::vector<std::string> left;
  for (const Descendant& other : services_.orphans.left()) {
    const Process* const owner = owner_of(other.pid, other.group);
    left.push_back(
        cat(other.pid, " (", shown(other.name), ")", owner ? cat(" of rank ", owner->rank) : ""));
  }
  return left;
}

bool LocalProcesses::look(std::chrono::milliseconds most) {
  constexpr std::chrono::milliseconds kMoment{20};
  services_.output.hurry(is_asked_to_end() || limited_at_);
  const bool waits_for_reader = services_.output.is_full();
  if (waits_for_reader) most = kMoment;
  std::vector<pollfd> waits{{services_.signals.file(), POLLIN, 0}};
  std::vector<Process*> owners;
  for (const auto& process : processes_)
    for (const OpenFile* file : {&process->child.output, &process->child.errors})
      if (*file && !(waits_for_reader && process->rank == 0)) {
        waits.push_back({file->number(), POLLIN, 0});
        owners.push_back(process.get());
      }
  if (::poll(waits.data(), waits.size(), static_cast<int>(most.count())) <= 0) return false;
  bool copied = false;
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (waits[i + 1].revents != 0) {
      copy_output(*owners[i], waits[i + 1].fd);
      copied = true;
    }
  if (waits[0].revents != 0) {
    for (const int signal : services_.signals.take()) pass_on(signal);
    collect();
  }
  return copied;
}

void LocalProcesses::copy_output(Process& process, int file) {
  std::array<char, CommandOutput::kMostAtOnce> bytes;
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  OpenFile& end =
      process.child.errors.number() == file ? process.child.errors : process.child.output;
  if (count <= 0) return end.close();
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  process.words.add(text);
  process.log.add(text);
  if (process.rank != 0) return;
  if (&end == &process.child.output)
    services_.output.print(text);
  else
    services_.output.print_error(text);
}

void LocalProcesses::collect() {
  // After a request to end, what a script has started may still be saving.
  // And what is left of one that ended well is named first.
  const auto spares = [this](const ChildEnd& how) {
    return is_asked_to_end() || asks_to_end(how.signal) || how.code == 0;
  };
  for (const ChildEnd& how : collect_children(spares)) {
    const auto found = std::ranges::find(processes_, how.pid,
                                         [](const auto& process) { return process->child.pid; });
    if (found != processes_.end())
      note_end(**found, how);
    else
      note_end_of_adopted(how);
  }
}

void LocalProcesses::note_end(Process& process, const ChildEnd& how) {
  process.lives = false;
  ends_.push_back({.rank = process.rank, .how = how, .made_to = killing_});
  if (asks_to_end(how.signal) && !is_asked_to_end()) {  // somebody asked this process alone
    process.is_asked = true;
    pass_on(how.signal, &process);
  }
  note_whether_gone(process);
}

// A request to end kills a script at once. Then what it has started says how the rank ended.
void LocalProcesses::note_end_of_adopted(const ChildEnd& how) {
  if (how.signal != 0 || how.code == 0) return;
  const Process* const owner = owner_of(how.pid, how.group);
  if (!owner || owner->lives || !is_asked_to_end(*owner)) return;
  const auto end = std::ranges::find(ends_, owner->rank, &ProcessEnd::rank);
  if (end->how.signal != 0) end->how = how;
}

// What a rank's program has started, as a script does, gets the signal if it handles it. Others
// would only be killed, like the `sleep` or `tee` of a script; they end soon after the rest.
// SIGUSR2 does not ask to end, so it kills no script.
void LocalProcesses::pass_on(int signal, const Process* to) {
  std::set<pid_t> told;
  std::set<const Process*> handled;  // by one of theirs
  for (const Descendant& other : services_.orphans.left()) {
    const int handled_signal = handled_for(other, signal);
    Process* const owner = handled_signal == 0 ? nullptr : owner_of(other.pid, other.group);
    if (!owner || owner->gone || (to && owner != to)) continue;
    ::kill(other.pid, handled_signal);
    told.insert(other.pid);
    handled.insert(owner);
    if (signal != SIGUSR2 && other.pid != owner->child.pid) owner->heirs.push_back(other.pid);
  }
  if (signal == SIGUSR2 || to) return;
  for (const auto& process : processes_)
    if (const pid_t pid = process->child.pid; process->lives && !told.contains(pid))
      ::kill(handled.contains(process.get()) ? pid : -pid, signal);
}

LocalProcesses::Process* LocalProcesses::owner_of(pid_t other, pid_t group) const {
  for (const auto& process : processes_)
    if (process->child.pid == group ||
        std::ranges::find(process->heirs, other) != process->heirs.end())
      return process.get();
  const std::optional<int> rank = services_.orphans.rank_of(other);
  return rank && *rank < std::ssize(processes_) ? processes_[static_cast<std::size_t>(*rank)].get()
                                                : nullptr;
}

void LocalProcesses::note_whether_gone(Process& process) {
  constexpr std::chrono::milliseconds kForTheRest{500};
  if (process.lives || process.gone) return;
  if (is_asked_to_end(process)) {
    if (std::ranges::any_of(process.heirs, process_exists)) return;
    if (!process.left_by_heirs) process.left_by_heirs = Clock::now();
    if (process_exists(-process.child.pid)) {
      if (Clock::now() - *process.left_by_heirs < kForTheRest) return;
      ::kill(-process.child.pid, SIGKILL);
    }
  }
  process.gone = true;
  const auto end = std::ranges::find(ends_, process.rank, &ProcessEnd::rank);
  if (end->failed() && !is_asked_to_end()) limit_time(cat("rank ", process.rank, " failed"));
}

bool LocalProcesses::is_asked_to_end(const Process& process) const {
  return is_asked_to_end() || process.is_asked;
}

bool LocalProcesses::any_writes() const {
  return std::ranges::any_of(processes_, [](const auto& process) {
    return !process->gone && is_locked(process->write_lock);
  });
}

void LocalProcesses::limit_time(const std::string& reason) {
  if (limited_at_) return;
  limited_at_ = Clock::now();
  last_moment_ = *limited_at_ + options_.patience;
  reason_ = reason;
}

void LocalProcesses::limit_time_after_request() {
  if (!is_asked_to_end()) return;
  if (services_.signals.asked_again()) limit_time("the second request to end");
  const auto gone = std::ranges::find_if(processes_, &Process::gone);
  if (gone != processes_.end()) limit_time(cat("rank ", (*gone)->rank, " ended"));
}

void LocalProcesses::kill_late_ones() {
  const Clock::time_point now = Clock::now();
  if (limited_at_ && now - *limited_at_ < kMostUnfinished && any_writes())
    last_moment_ = now + options_.patience;
  if (now < last_moment_) return;
  std::vector<std::string> late;
  for (const auto& process : processes_)
    if (!process->gone) {
      late.push_back(cat(process->rank, " (process ", process->child.pid, ")"));
      if (process->lives) ::kill(-process->child.pid, SIGKILL);
    }
  for (const Descendant& other : services_.orphans.left()) ::kill(other.pid, SIGKILL);
  if (!killing_) tell_of_late_ones(std::move(late));
  killing_ = true;
}

void LocalProcesses::tell_of_late_ones(std::vector<std::string> late) {
  constexpr std::size_t kMostNamed = 8;
  if (const std::size_t count = late.size(); count > kMostNamed) {
    late.resize(kMostNamed);
    late.push_back(cat("and ", count - kMostNamed, " more"));
  }
  services_.output.print_error(
      cat("belfry run: ", options_.patience.count() / 1000.0, " s after ", reason_,
          ", these had not ended, and were killed: rank ", join(late, ", "), ". ",
          options_.log_directory,
          "/rank_N.log shows what each did last. Started again, a run with --run_dir resumes from "
          "its newest checkpoint.\n"));
}

void LocalProcesses::kill_all() {
  while (std::ranges::any_of(processes_, &Process::lives)) {
    for (const auto& process : processes_)
      if (process->lives) ::kill(-process->child.pid, SIGKILL);
    collect();
    ::usleep(1000);
  }
  services_.orphans.end_all();
}

const ProcessEnd* first_failure(const std::vector<ProcessEnd>& ends) {
  const auto find = [&](const auto& is) {
    const auto found = std::ranges::find_if(ends, is);
    return found == ends.end() ? nullptr : &*found;
  };
  const auto* const killed =
      find([](const ProcessEnd& e) { return e.how.signal != 0 && !e.made_to; });
  if (killed) return killed;
  if (const auto* end = find([](const ProcessEnd& e) { return e.failed() && !blames_another(e); }))
    return end;
  return find([&](const ProcessEnd& e) { return e.failed() && !ended_by_request(e, ends); });
}

}  // namespace belfry
