#include "belfry/trainers/commands/local_processes.h"

#include <csignal>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace local_processes_test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the processes wait for.
enum class Until { kEnd, kRequest, kManyRequests };

class LocalProcessesTest : public testing::Test {
 protected:
  LocalProcessesTest() { local_file_system().create_directory(folder_); }
  ~LocalProcessesTest() override { remove_tree(local_file_system(), folder_); }

  // Runs a script per rank. With a request, this process gets SIGTERM as soon as there are files
  // up0 and up1. Returns the ends by rank.
  std::map<int, ProcessEnd> run(const std::string& of_rank_0, const std::string& of_rank_1,
                                Until until = Until::kEnd) {
    const OrphanWatch orphans;
    ForwardedSignals signals;
    CommandOutput output({.kept_in = "logs"});
    const std::string script =
        cat("cd ", folder_, "; if test $RANK = 0; then ", of_rank_0, "\nelse ", of_rank_1, "\nfi");
    LocalProcesses processes({.command = {"sh", "-c", script},
                              .size = 2,
                              .log_directory = folder_,
                              .heading = "test",
                              .patience = milliseconds(400)},
                             {signals, orphans, output});
    std::map<int, ProcessEnd> ends;
    {
      const std::jthread asks([&](const std::stop_token& stop) { ask(until, stop); });
      for (const ProcessEnd& end : processes.finish()) ends[end.rank] = end;
    }
    signals.take();  // what would end the test
    return ends;
  }
  bool exists(const std::string& name) const {
    return local_file_system().exists(cat(folder_, "/", name));
  }

  void ask(Until until, const std::stop_token& stop) const {
    for (bool is_asked = false; until != Until::kEnd && !stop.stop_requested();) {
      std::this_thread::sleep_for(milliseconds(20));
      if (!exists("up0") || !exists("up1") || (is_asked && until == Until::kRequest)) continue;
      ::kill(::getpid(), SIGTERM);
      is_asked = true;
    }
  }

  const std::string folder_ = temporary_path(".logs");
  // Ends as a training does that is asked to.
  const std::string obeys_ = "trap 'exit 143' TERM; touch up$RANK; while :; do sleep 0.02; done";
};

// It holds the lock as a training does that writes a checkpoint.
TEST_F(LocalProcessesTest, AreNotKilledWhileTheyWrite) {
  const std::string fails = "until test -e up; do sleep 0.01; done; exit 3";
  auto ends = run("exec flock $BELFRY_UNFINISHED_LOCK sh -c 'touch up; sleep 2'", fails);
  EXPECT_EQ(ends[1].how.code, 3);
  EXPECT_EQ(ends[0].how.code, 0);
  EXPECT_FALSE(ends[0].made_to);
  EXPECT_THAT(local_file_system().list(folder_), ElementsAre("rank_0.log", "rank_1.log", "up"));
  testing::internal::CaptureStderr();
  ends = run("exec sleep 100", fails);
  EXPECT_TRUE(ends[0].made_to);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("belfry run: 0.4 s after rank 1 failed, these had not ended, and were "
                        "killed: rank 0 (process "));
}

TEST_F(LocalProcessesTest, ThatDoNotEndOnRequestWithTheOthersAreKilled) {
  testing::internal::CaptureStderr();
  auto ends = run(obeys_, "trap '' TERM; touch up1; while :; do sleep 0.02; done", Until::kRequest);
  EXPECT_EQ(ends[0].how.code, 143);
  EXPECT_FALSE(ends[0].made_to);
  EXPECT_TRUE(ends[1].made_to);
  EXPECT_EQ(ends[1].how.signal, SIGKILL);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("belfry run: 0.4 s after rank 0 ended, these had not ended, and were "
                              "killed: rank 1 (process "),
                    HasSubstr("/rank_N.log shows what each did last. Started again, a run with "
                              "--run_dir resumes")));
}

TEST_F(LocalProcessesTest, ThatSaveOnRequestAreNotKilled) {
  auto ends = run(obeys_,
                  "trap '' TERM; exec flock $BELFRY_UNFINISHED_LOCK sh -c 'touch up1; sleep 2; "
                  "exit 143'",
                  Until::kRequest);
  EXPECT_EQ(ends[1].how.code, 143);
  EXPECT_FALSE(ends[1].made_to);
}

TEST_F(LocalProcessesTest, ThatNeverEndAreKilledAfterASecondRequest) {
  const std::string ignores = "trap '' TERM; touch up$RANK; while :; do sleep 0.02; done";
  testing::internal::CaptureStderr();
  auto ends = run(ignores, ignores, Until::kManyRequests);
  EXPECT_TRUE(ends[0].made_to && ends[1].made_to);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("after the second request to end, these had not ended"));
}

// A shell dies of the signal at once. What it has started, also in a session of its own, may take
// longer than a rank that has ended leaves to others, as long as none has ended.
TEST_F(LocalProcessesTest, HaveEndedOnRequestWhenWhatTheyStartedHasEnded) {
  const std::string saves =
      "sh -c 'trap \"sleep 1; touch saved$RANK; until test -e saved0 -a -e saved1; do sleep 0.02; "
      "done; exit 7\" TERM; touch up$RANK; while :; do sleep 0.02; done'; true";
  auto ends = run(saves, "setsid -w " + saves, Until::kRequest);
  EXPECT_TRUE(exists("saved0"));
  EXPECT_TRUE(exists("saved1"));
  EXPECT_EQ(ends[0].how.code, 7);
  EXPECT_EQ(ends[1].how.code, 7);
}

// The run had stalled, and the process that was asked to end has said so to the others.
TEST(FirstFailure, IsNoStallThatARequestHasEnded) {
  const ErrorFields stalled{.kind = ErrorKind::kStalled, .rank = 1, .why = "SIGTERM, but"};
  std::vector<ProcessEnd> ends{{.rank = 0, .how = {.code = 75}, .error = stalled},
                               {.rank = 1, .how = {.code = 143}, .error = stalled}};
  EXPECT_EQ(first_failure(ends), nullptr);
  ends[1].how.code = 75;
  EXPECT_EQ(first_failure(ends), &ends[1]);
}

}  // namespace local_processes_test
}  // namespace belfry
