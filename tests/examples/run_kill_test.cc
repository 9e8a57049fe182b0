// Runs that are killed at any moment, and resume.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/tests/trainers/runs/run_files.h"

extern char** environ;

namespace belfry {
namespace run_kill_test {

using test::course_of;
using test::summary_of;

// 1,024 images, 40 steps, and a checkpoint after each step.
class RunKillTest : public testing::Test {
 protected:
  std::string program() const { return std::string(BELFRY_BIN_DIR) + "/" + name_; }
  std::vector<std::string> command(const std::string& run) const {
    return {"--data_dir=" + folder_.path(),
            "--devices=cpu:1",
            "--threads=1",
            "--batch_size=16",
            "--max_steps=40",
            "--save_every_steps=1",
            "--run_dir=" + run};
  }

  // Ends the run by `signal` after some time. Returns its exit status, or -1 if the signal ended
  // it.
  int run_and_signal(const std::string& run, int signal, std::chrono::microseconds after) const {
    std::vector<std::string> words = command(run);
    words.insert(words.begin(), program());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int stream : {1, 2})
      posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::usleep(static_cast<useconds_t>(after.count()));
    ::kill(child, signal);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void expect_same(const std::string& run, const std::string& reference) const {
    const Finished done = run_program(program(), command(run));
    ASSERT_EQ(done.status, 0) << done.errors;
    EXPECT_EQ(summary_of(run)["state_hash"], summary_of(reference)["state_hash"]);
    EXPECT_EQ(summary_of(run)["params_hash"], summary_of(reference)["params_hash"]);
    EXPECT_EQ(course_of(run), course_of(reference));
  }

  // Kills the run at random moments, so many times.
  void expect_same_after_kills(int kills) {
    const std::string reference = folder_.path() + "/reference";
    const auto began = std::chrono::steady_clock::now();
    ASSERT_EQ(run_program(program(), command(reference)).status, 0);
    const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - began;
    std::uniform_real_distribution<double> part(0, 1.1);
    for (int i = 0; i < kills; ++i) {
      const auto after =
          std::chrono::microseconds(static_cast<std::int64_t>(1e6 * part(random_) * whole.count()));
      SCOPED_TRACE("killed after " + std::to_string(after.count()) + " us");
      const std::string run = folder_.path() + "/run";
      run_and_signal(run, SIGKILL, after);
      expect_same(run, reference);
      std::filesystem::remove_all(run);
    }
  }

  test::SmallDigits folder_;
  std::string name_ = "mnist";  // of the program
  std::mt19937 random_{std::random_device{}()};
};

TEST_F(RunKillTest, GoesOnToTheSameBitsWheneverItIsKilled) {
  expect_same_after_kills(kSanitized ? 2 : 10);
}

// Its noise continues, too.
TEST_F(RunKillTest, GoesOnToTheSameNoise) {
  name_ = "vae";
  expect_same_after_kills(kSanitized ? 1 : 3);
}

// Two losses, which take turns in each step.
TEST_F(RunKillTest, GoesOnToTheSameBitsOfAGan) {
  name_ = "gan";
  expect_same_after_kills(2);
}

TEST_F(RunKillTest, SavesWhenItIsAskedToEnd) {
  const std::string reference = folder_.path() + "/reference";
  ASSERT_EQ(run_program(program(), command(reference)).status, 0);
  const std::string run = folder_.path() + "/run";
  // If the signal came before the program listened, it ended the program.
  const int code = run_and_signal(run, SIGTERM, std::chrono::milliseconds(kSanitized ? 4000 : 500));
  EXPECT_TRUE(code == 143 || code == 0 || code == -1) << code;
  if (code == 143) {
    EXPECT_EQ(summary_of(run)["exit_code"], 143);
    EXPECT_EQ(summary_of(run)["finished"], false);
  }
  expect_same(run, reference);
}

}  // namespace run_kill_test
}  // namespace belfry
