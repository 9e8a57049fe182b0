#include "belfry/trainers/commands/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Why a file cannot be started; "" if it can.
std::string start_failure(const std::string& path) {
  if (::access(path.c_str(), X_OK) != 0) return std::strerror(errno);
  const bool is_file = local_file_system().target_kind(path) == FileKind::kFile;
  return is_file ? "" : "it is no file";
}

std::string own_folder() {
  const std::string own = local_file_system().resolve("/proc/self/exe");
  return own.substr(0, own.rfind('/'));
}

std::vector<std::string> environment_of(const ChildCommand& command) {
  std::vector<std::string> result;
  for (char** entry = ::environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (!command.environment.contains(name) &&
        std::ranges::find(command.unset, name) == command.unset.end())
      result.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) result.push_back(cat(name, "=", value));
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// What the child does between fork() and exec(), by system calls alone: other threads may have held
// locks. It writes the number of an error to `failed`.
class Birth {
 public:
  Birth(const ChildCommand& command, pid_t parent)
      : command_(command),
        parent_(parent),
        texts_(command.arguments),
        variables_(environment_of(command)),
        arguments_(pointers_to(texts_)),
        environment_(pointers_to(variables_)) {}

  [[noreturn]] void become(int input, int output, int errors, int failed) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent_) end_process(kNotStarted);  // the parent ended before prctl()
    ::setpgid(0, 0);
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
    if (command_.open_files) ::setrlimit(RLIMIT_NOFILE, &*command_.open_files);
    ::sigprocmask(SIG_SETMASK, &command_.blocked, nullptr);
    if (::dup2(input, 0) >= 0 && ::dup2(output, 1) >= 0 && ::dup2(errors, 2) >= 0)
      ::execvpe(arguments_[0], arguments_.data(), environment_.data());
    const int error = errno;
    std::ignore = ::write(failed, &error, sizeof(error));
    end_process(kNotStarted);
  }

 private:
  static constexpr int kNotStarted = 127;

  const ChildCommand& command_;
  const pid_t parent_;
  std::vector<std::string> texts_, variables_;
  std::vector<char*> arguments_, environment_;
};

// Appends what can be read now; closes the file at its end.
void read_some(OpenFile& file, std::string& text) {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(file.number(), buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  if (count == 0 || (count < 0 && errno != EINTR)) file.close();
}

ChildEnd end_of(pid_t pid, const siginfo_t& found) {
  const bool killed = found.si_code != CLD_EXITED;
  return {.pid = pid,
          .group = ::getpgid(pid),
          .signal = killed ? found.si_status : 0,
          .code = found.si_status + (killed ? 128 : 0)};
}

}  // namespace

OpenFile::~OpenFile() {
  if (number_ >= 0) ::close(number_);
}

ManyOpenFiles::ManyOpenFiles() {
  if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) return;
  const rlimit all{before_.rlim_max, before_.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &all);
}

ManyOpenFiles::~ManyOpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

Pipe make_pipe() {
  int ends[2];
  const bool made = ::pipe(ends) == 0;  // first, as arguments are evaluated in any order
  require<IoError>(made, "cannot make a pipe: ", std::strerror(errno),
                   errno == EMFILE ? "; allow more open files (ulimit -n)" : "");
  for (const int end : ends) ::ioctl(end, FIOCLEX);
  return {OpenFile(ends[0]), OpenFile(ends[1])};
}

std::string find_program(const std::string& name) {
  if (name.find('/') != name.npos) {
    const std::string why = start_failure(name);
    require<IoError>(why.empty(), "cannot start '", name, "': ", why);
    return name;
  }
  const char* const path = std::getenv("PATH");
  const std::string folders = path ? path : "/bin:/usr/bin";  // as execvp() has it
  for (const std::string_view folder : split(folders, ':'))
    if (start_failure(cat(folder.empty() ? "." : folder, "/", name)).empty()) return name;
  const std::string beside = cat(own_folder(), "/", name);
  require<IoError>(!name.empty() && start_failure(beside).empty(), "cannot start '", name,
                   "': there is no such program in the folders of PATH (", folders,
                   "), nor beside this one in ", own_folder(), "; name its path, such as ./", name,
                   ", or add its folder to PATH");
  return beside;
}

Child start_child(const ChildCommand& command) {
  Pipe input = make_pipe(), output = make_pipe(), failed = make_pipe();
  Pipe errors = command.separate_errors ? make_pipe() : Pipe();
  const Birth birth(command, ::getpid());
  const pid_t pid = ::fork();
  require<IoError>(pid >= 0, "cannot start a process: ", std::strerror(errno));
  if (pid == 0)
    birth.become(input.out.number(), output.in.number(),
                 (command.separate_errors ? errors : output).in.number(), failed.in.number());
  failed.in.close();
  int error = 0;
  if (::read(failed.out.number(), &error, sizeof(error)) == sizeof(error)) {
    ::waitpid(pid, nullptr, 0);
    throw IoError(cat("cannot start '", command.arguments[0], "': ", std::strerror(error)));
  }
  return {pid, std::move(output.out), std::move(errors.out)};
}

std::vector<ChildEnd> collect_children(const std::function<bool(const ChildEnd&)>& spares) {
  std::vector<ChildEnd> ends;
  for (;;) {
    siginfo_t found = {};
    if (::waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) != 0 || found.si_pid == 0)
      return ends;
    ends.push_back(end_of(found.si_pid, found));
    // If it is its own, the group belongs to the child until it is collected.
    if (ends.back().group == found.si_pid && !spares(ends.back())) ::kill(-found.si_pid, SIGKILL);
    ::waitpid(found.si_pid, nullptr, 0);
  }
}

ChildResult run_to_end(const ChildCommand& command) {
  Child child = start_child(command);
  ChildResult result;
  while (child.output || child.errors) {  // both, so that neither pipe fills up
    std::array<pollfd, 2> files = {
        {{child.output.number(), POLLIN, 0}, {child.errors.number(), POLLIN, 0}}};
    if (::poll(files.data(), files.size(), -1) < 0) continue;  // a signal
    if (files[0].revents != 0) read_some(child.output, result.output);
    if (files[1].revents != 0) read_some(child.errors, result.errors);
  }
  siginfo_t found = {};
  while (::waitid(P_PID, static_cast<id_t>(child.pid), &found, WEXITED) != 0 && errno == EINTR) {
  }
  result.end = end_of(child.pid, found);
  return result;
}

}  // namespace belfry
