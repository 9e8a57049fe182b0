#include "belfry/trainers/commands/local_processes.h"

#include <algorithm>
#include <array>
#include <random>
#include <string_view>

#include <poll.h>
#include <unistd.h>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/tcp_group.h"
#include "belfry/trainers/util/stop_signals.h"

namespace belfry {
namespace {

// Gives up if nobody takes the output any more.
void print(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

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

// Variables of launchers around this one, which did not start these processes.
const std::vector<std::string> kOtherLaunchers = {"OMPI_COMM_WORLD_SIZE",
                                                  "PMI_SIZE",
                                                  "PMIX_RANK",
                                                  "SLURM_STEP_NUM_TASKS",
                                                  "TORCHELASTIC_USE_AGENT_STORE",
                                                  "TORCHELASTIC_RUN_ID",
                                                  "TORCHELASTIC_RESTART_COUNT",
                                                  "BELFRY_PORT"};

// Whether an error names another rank: "error: [rank 0, a] rank 1, a: ..." of rank 0 blames rank 1.
bool blames_another(const ProcessEnd& end) {
  const std::string own = cat("error: [rank ", end.rank, ", ");
  if (!end.said.starts_with(own)) return false;
  const std::size_t at = end.said.find("] ", own.size());
  return at != std::string::npos && std::string_view(end.said).substr(at + 2).starts_with("rank ");
}

}  // namespace

// What a process prints, in a file.
class LocalProcesses::RankLog {
 public:
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
    print(2, cat("belfry run: ", error.what(), "; the training goes on, and this log ends here\n"));
  }

  std::unique_ptr<WritableFile> file_;
};

// Keeps the last line that says what went wrong.
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
    return error_.empty() ? last_ : error_;
  }

 private:
  static constexpr std::size_t kMost = 4096;

  void end_line() {
    if (line_.starts_with("error: ")) error_ = line_;
    if (!line_.empty()) last_ = std::exchange(line_, {});
  }

  std::string line_, last_, error_;
};

struct LocalProcesses::Process {
  int rank = 0;
  Child child;
  bool lives = true;
  RankLog log;
  std::string write_lock;  // of kUnfinishedVariable
  LastWords words;
};

bool ProcessEnd::failed() const {
  const bool asked =
      how.signal == 0 && (how.code == exit_code_of(SIGINT) || how.code == exit_code_of(SIGTERM));
  return how.code != 0 && !asked;
}

LocalProcesses::LocalProcesses(const LocalProcessesOptions& options, ForwardedSignals& signals)
    : options_(options), signals_(signals) {
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
  if (options_.orphans) options_.orphans->end_all();
  for (const auto& process : processes_) is_locked(process->write_lock);  // and remove it
}

void LocalProcesses::start(int rank, int port, const std::string& token) {
  auto process = std::make_unique<Process>();
  process->rank = rank;
  const std::string files =
      cat(local_file_system().resolve(options_.log_directory), "/rank_", rank);
  process->write_lock = files + ".writing";
  process->log.begin(cat(options_.log_directory, "/rank_", rank, ".log"), options_.adds_to_logs,
                     cat("# ", options_.heading, "\n"));
  const std::string size = std::to_string(options_.size);
  std::map<std::string, std::string> environment{
      {"RANK", std::to_string(rank)}, {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", size},           {"LOCAL_WORLD_SIZE", size},
      {"MASTER_ADDR", "127.0.0.1"},   {"MASTER_PORT", std::to_string(port)},
      {"BELFRY_TOKEN", token},        {kUnfinishedVariable, process->write_lock}};
  if (options_.orphans) environment[OrphanWatch::kVariable] = options_.orphans->value();
  process->child = start_child({.arguments = options_.command,
                                .environment = std::move(environment),
                                .unset = kOtherLaunchers,
                                .blocked = signals_.before(),
                                .separate_errors = rank == 0});
  processes_.push_back(std::move(process));
}

std::vector<ProcessEnd> LocalProcesses::finish() {
  const auto most = std::min(std::chrono::milliseconds(1'000), options_.patience / 4);
  while (std::ranges::any_of(processes_, &Process::lives)) {
    look(most);
    const Clock::time_point now = Clock::now();
    if (failed_at_ && now - *failed_at_ < kMostUnfinished && any_writes())
      last_moment_ = now + options_.patience;
    killing_ = killing_ || now >= last_moment_;
    if (killing_) signal_all(SIGKILL);
  }
  while (look(std::chrono::milliseconds(0))) {
  }
  for (ProcessEnd& end : ends_)
    end.said = processes_[static_cast<std::size_t>(end.rank)]->words.take();
  return ends_;
}

bool LocalProcesses::look(std::chrono::milliseconds most) {
  std::vector<pollfd> waits{{signals_.file(), POLLIN, 0}};
  std::vector<Process*> owners;
  for (const auto& process : processes_)
    for (const OpenFile* file : {&process->child.output, &process->child.errors})
      if (*file) {
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
    for (const int signal : signals_.take()) signal_all(signal);
    collect();
  }
  return copied;
}

void LocalProcesses::copy_output(Process& process, int file) {
  std::array<char, 1 << 16> bytes;
  const ssize_t count = ::read(file, bytes.data(), bytes.size());
  OpenFile& end =
      process.child.errors.number() == file ? process.child.errors : process.child.output;
  if (count <= 0) return end.close();
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  process.words.add(text);
  process.log.add(text);
  if (process.rank == 0) print(&end == &process.child.output ? 1 : 2, text);
}

bool LocalProcesses::any_writes() const {
  return std::ranges::any_of(processes_, [](const auto& process) {
    return process->lives && is_locked(process->write_lock);
  });
}

void LocalProcesses::collect() {
  std::vector<pid_t> living;
  for (const auto& process : processes_)
    if (process->lives) living.push_back(process->child.pid);
  for (const ChildEnd& how : collect_children(living)) {
    const auto found = std::ranges::find(processes_, how.pid,
                                         [](const auto& process) { return process->child.pid; });
    (*found)->lives = false;
    ends_.push_back({.rank = (*found)->rank, .how = how, .made_to = killing_});
    if (ends_.back().failed() && signals_.asked_to_end() == 0 && !failed_at_) {
      failed_at_ = Clock::now();
      last_moment_ = *failed_at_ + options_.patience;
    }
  }
}

void LocalProcesses::signal_all(int signal) {
  for (const auto& process : processes_)
    if (process->lives) ::kill(process->child.pid, signal);
}

void LocalProcesses::kill_all() {
  while (std::ranges::any_of(processes_, &Process::lives)) {
    signal_all(SIGKILL);
    collect();
    ::usleep(1000);
  }
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
  return find([](const ProcessEnd& e) { return e.failed(); });
}

}  // namespace belfry
