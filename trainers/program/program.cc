#include "belfry/trainers/program/program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>

#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/util/error_file.h"

namespace belfry {
namespace {

// One line, whatever the message.
std::string line_of(std::string text) {
  text = cat("error: ", text);
  std::ranges::replace(text, '\n', ' ');
  return text;
}

int fail(const std::string& line, int code) {
  std::fprintf(stderr, "%s\n", line.c_str());
  return code;
}

// Each thread needs so much stack, and gets the limit of the first one. Libraries take half of it.
constexpr rlim_t kLeastStackKib = 256;

void require_stack() {
  rlimit stack = {};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >> 10 >= kLeastStackKib) return;
  throw Error(cat("the stack may have ", stack.rlim_cur >> 10, " KiB, and needs at least ",
                  kLeastStackKib, "; allow it more (ulimit -s 8192)"));
}

// Graphs of many devices have millions of small objects. glibc would join freed ones over and over.
// Without its fast bins a plan for 256 devices takes 0.92 of the time.
void leave_fast_bins_out() {
#ifdef M_MXFAST
  ::mallopt(M_MXFAST, 0);
#endif
}

// Whether the other end of a pipe, a socket or a terminal is gone.
bool has_no_reader(int descriptor) {
  pollfd end{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&end, 1, 0) == 1 && (end.revents & (POLLERR | POLLHUP)) != 0;
}

template <class E>
bool is_a(const std::exception& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

ErrorFields known_of(const std::exception& error) {
  ErrorFields fields = fields_of(error);
  if (is_a<std::bad_alloc>(error) && fields.where.empty())
    fields.why =
        "there is no memory left; use a smaller batch, fewer shards or fewer devices, or allow "
        "this process more memory (ulimit -v)";
  return fields;
}

int fail_with(const ErrorFields& error) {
  write_error_file(error);
  return fail(line_of(error_text(error)), exit_code_of(error));
}

int status_of(const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return fail_with(known_of(error));
  } catch (...) {
    return fail_with({.why = "something was thrown that is no std::exception"});
  }
}

}  // namespace

int exit_code_of(const ErrorFields& error) {
  if (error.exit_code != 0) return error.exit_code;
  if (error.kind == ErrorKind::kCorrupted) return kCorruptedExitCode;
  return error.is_mistake ? 2 : 1;
}

std::string error_line(const std::exception& error) { return line_of(error_text(known_of(error))); }

std::string program_name(int argc, const char* const* argv) {
  const std::string_view text = argc > 0 && argv[0] ? argv[0] : "program";
  return std::string(text.substr(text.rfind('/') + 1));
}

std::string standard_output_failure() {
  const bool is_whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_whole || has_no_reader(STDOUT_FILENO)) return "";
  return "standard output could not be written to its end (is it closed, or its disk full?); what "
         "was printed there is not whole";
}

void keep_freed_memory() {
#ifdef M_MMAP_MAX
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

std::span<const char* const> program_arguments(int argc, const char* const* argv) {
  const std::span all(argv, static_cast<std::size_t>(argc));
  return all.subspan(std::min<std::size_t>(all.size(), 1));
}

int run_program(const std::function<int()>& body) {
  // If the reader of a pipe goes, or a file reaches its size limit, the write must fail without
  // ending the run.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  std::clearerr(stdout);
  leave_fast_bins_out();
  const FlagsNameOptions flags_name_options;
  const int code = status_of([&] {
    prepare_standard_descriptors();
    require_stack();
    return body();
  });
  const std::string lost = standard_output_failure();
  std::clearerr(stdout);
  return lost.empty() ? code : std::max(code, fail(line_of(lost), 1));
}

int run_program_without_flags(int argc, const char* const* argv, const std::string& description,
                              const std::function<int()>& body) {
  return run_program([&] {
    FlagParser parser(description, program_name(argc, argv));
    const std::string help = parser.parse(program_arguments(argc, argv));
    if (help.empty()) return body();
    std::fputs(help.c_str(), stdout);
    return 0;
  });
}

}  // namespace belfry
