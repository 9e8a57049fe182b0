#include "belfry/framework/base/end_process.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace end_process_test {

// `belfry run` looks at the lock before it kills.
TEST(UnfinishedWrite, LocksTheFileThatTheLauncherNames) {
  const std::string path = temporary_path(".writing");
  FileSystem& files = local_file_system();
  ::setenv(kUnfinishedVariable, path.c_str(), 1);
  auto first = std::make_unique<UnfinishedWrite>();
  auto second = std::make_unique<UnfinishedWrite>();
  first.reset();
  EXPECT_TRUE(UnfinishedWrite::any());
  EXPECT_EQ(files.lock(path), nullptr);
  second.reset();
  EXPECT_FALSE(UnfinishedWrite::any());
  EXPECT_FALSE(files.exists(path));
  // A folder that is gone is no reason not to write.
  ::setenv(kUnfinishedVariable, (path + "/none/lock").c_str(), 1);
  const UnfinishedWrite third;
  EXPECT_TRUE(UnfinishedWrite::any());
  ::unsetenv(kUnfinishedVariable);
}

// Runs a child whose stderr is `file`, and which ends with code 75 and last words. Like threads of
// ours, it takes no signals. Returns what waitpid() says.
int status_of_child(int file) {
  const pid_t child = ::fork();
  if (child == 0) {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::dup2(file, STDERR_FILENO);
    end_process(75, "error: last words\n");
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void expect_code(int status) {
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 75);
}

std::string text_in(int file) {
  std::array<char, 100> text;
  return {text.data(),
          static_cast<std::size_t>(std::max<ssize_t>(0, ::read(file, text.data(), text.size())))};
}

TEST(EndProcess, SaysItsLastWords) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  expect_code(status_of_child(ends[1]));
  EXPECT_EQ(text_in(ends[0]), "error: last words\n");
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  expect_code(status_of_child(ends[1]));
  EXPECT_EQ(text_in(ends[0]), "error: last words\n");
}

// Nobody reads, so a plain write would wait for ever.
TEST(EndProcess, DoesNotWaitLongForAReader) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string block(4096, 'x');
  while (::write(ends[1], block.data(), block.size()) > 0) {
  }
  while (::write(ends[1], "x", 1) > 0) {
  }
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);  // as stderr usually is
  expect_code(status_of_child(ends[1]));
}

TEST(EndProcess, KeepsItsCodeWhereNobodyCanRead) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  expect_code(status_of_child(ends[1]));
}

}  // namespace end_process_test
}  // namespace belfry
