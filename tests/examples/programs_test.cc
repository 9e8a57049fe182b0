// The example programs, run as people run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/file_system.h"
#include "belfry/framework/text.h"

extern char** environ;

namespace belfry {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = local_file_system().read(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Finished {
  int status;
  std::string errors;
};

// Runs a program of the build with both streams kept out of the test's output.
Finished run(const std::string& program, std::vector<std::string> arguments) {
  const std::string path = std::string(BELFRY_BIN_DIR) + "/" + program;
  const std::string errors = cat(testing::TempDir(), "programs_test.", getpid(), ".err");
  arguments.insert(arguments.begin(), path);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), 01101, 0600);  // create, truncate
  pid_t child = 0;
  const int failure = posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failure, 0) << path;
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  Finished finished{WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(errors)};
  local_file_system().remove(errors);
  return finished;
}

TEST(Programs, MnistTrainsOnGeneratedDigitsAndWritesItsJson) {
  const std::string json = cat(testing::TempDir(), "programs_test.", getpid(), ".json");
  const Finished done =
      run("mnist", {"--devices=cpu:4", "--max_steps=2", "--batch_size=8", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of(json));
  local_file_system().remove(json);
  EXPECT_EQ(report["steps"], 2);
  EXPECT_EQ(report["devices"].size(), 4u);
  EXPECT_EQ(report["allreduce"], "collective");
  EXPECT_EQ(report["replicas_equal"], true);
  EXPECT_EQ(report["params_hash"].get<std::string>().size(), 16u);
}

TEST(Programs, LinearRegressionFindsItsLine) {
  const std::string json = cat(testing::TempDir(), "programs_test.", getpid(), ".line.json");
  const Finished done = run("linear_regression", {"--json", json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(text_of(json));
  local_file_system().remove(json);
  EXPECT_LT(report["loss"].get<double>(), 0.001);
  EXPECT_TRUE(report["test_accuracy"].is_null());
}

TEST(Programs, MissingDataExitsWithOneAndNamesTheFolder) {
  const Finished done = run("mnist", {"--data_dir=/nowhere"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("/nowhere"));
}

TEST(Programs, WrongFlagsExitWithTwo) {
  EXPECT_EQ(run("linear_regression", {"--data_dir=x"}).status, 2);
  const Finished done = run("mnist", {"--alreduce=naive"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.errors, HasSubstr("--allreduce"));
}

}  // namespace
}  // namespace belfry
