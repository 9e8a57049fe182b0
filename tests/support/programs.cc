#include "belfry/tests/support/programs.h"

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"

extern char** environ;

namespace belfry {
namespace {

std::string take_text(const std::string& path) {
  std::string text = text_of_file(path);
  local_file_system().remove(path);
  return text;
}

}  // namespace

std::string temporary_path(const std::string& ending) {
  static int count = 0;
  return cat(testing::TempDir(), "belfry_test.", getpid(), ".", count++, ending);
}

Finished run_program(const std::string& path, const std::vector<std::string>& arguments) {
  const std::string output = temporary_path(".out"), errors = temporary_path(".err");
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kWriteCreateTruncate = 01101;
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), kWriteCreateTruncate, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), kWriteCreateTruncate, 0600);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return {-1, "", cat(path, " cannot be started: error ", failure)};
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, take_text(output), take_text(errors)};
}

Finished run_built(const std::string& program, const std::vector<std::string>& arguments) {
  return run_program(cat(BELFRY_BIN_DIR, "/", program), arguments);
}

std::string text_of_file(const std::string& path) {
  const std::vector<std::byte> bytes = local_file_system().read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Finished check_traces(const std::vector<std::string>& files) {
  std::vector<std::string> arguments{cat(BELFRY_SOURCE_DIR, "/scripts/check_trace")};
  arguments.insert(arguments.end(), files.begin(), files.end());
  Finished finished = run_program("python3", arguments);
  if (finished.status == -1)
    finished.errors += "; python3 is missing: run scripts/setup, which installs it";
  return finished;
}

}  // namespace belfry
