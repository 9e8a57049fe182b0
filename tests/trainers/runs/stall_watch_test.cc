#include "belfry/trainers/runs/stall_watch.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/end_process.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/data/gatherer.h"
#include "belfry/trainers/util/stop_signals.h"

namespace own_program {
struct Blocks final : belfry::Callback {};
}  // namespace own_program

namespace belfry {
namespace stall_watch_test {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using TimePoint = Activity::Clock::time_point;
using What = TrainingActivity::What;

// A training that a test moves from place to place, and a reporter. Times are those of the test.
class StallReporterTest : public testing::Test {
 protected:
  // What is logged when the reporter looks at so many seconds after the start.
  std::string look(StallReporter& reporter, double seconds) {
    testing::internal::CaptureStderr();
    reporter.look(start_ + std::chrono::duration_cast<Activity::Clock::duration>(
                               std::chrono::duration<double>(seconds)));
    return testing::internal::GetCapturedStderr();
  }
  void enter(What what, std::int64_t step) { training_.enter({.what = what, .step = step}); }
  void enter_callback(std::int64_t step) {
    training_.enter({What::kCallback, &typeid(own_program::Blocks), "after_step", step});
  }

  const StopSignals signals_;  // forgets those of other tests
  const TimePoint start_ = Activity::Clock::now();
  TrainingActivity training_;
};

TEST_F(StallReporterTest, NamesACallbackAndRepeatsItAtLongerAndLongerTimes) {
  StallReporter reporter(training_, {});
  enter_callback(3);
  EXPECT_THAT(look(reporter, 0), IsEmpty());
  EXPECT_THAT(look(reporter, 9.9), IsEmpty());
  EXPECT_EQ(look(reporter, 10),
            "W the callback own_program::Blocks::after_step at step 3 has made no progress for 10 "
            "s\n");
  EXPECT_THAT(look(reporter, 19.9), IsEmpty());
  EXPECT_THAT(look(reporter, 20), HasSubstr("has made no progress for 20 s"));
  enter(What::kInput, 4);
  EXPECT_EQ(look(reporter, 21), "I the run makes progress again, after 21 s\n");
  // It has told of a longer wait.
  EXPECT_THAT(look(reporter, 40), IsEmpty());
  EXPECT_THAT(look(reporter, 61), HasSubstr("step 4 has made no progress for 40 s"));
}

TEST_F(StallReporterTest, NamesTheDataSetThatAStepWaitsFor) {
  StallReporter reporter(training_, {});
  GatherActivity gather("gather() of 'my records'");
  enter(What::kInput, 12);
  gather.begin();
  look(reporter, 0);
  EXPECT_EQ(look(reporter, 10),
            "W step 12 has made no progress for 10 s: gather() of 'my records' has taken 10 s\n");
  gather.move();  // a part of the batch is there
  EXPECT_THAT(look(reporter, 11), HasSubstr("makes progress again"));
  EXPECT_THAT(look(reporter, 20), IsEmpty());
  gather.end();
}

TEST_F(StallReporterTest, LeavesDataOutThatAreReadBesideAStep) {
  StallReporter reporter(training_, {});
  GatherActivity gather("gather() of 'my records'");
  gather.begin();
  enter(What::kStep, 1);
  for (int step = 2; step < 30; ++step) {  // steps come on, and have their samples
    EXPECT_THAT(look(reporter, step), IsEmpty());
    enter(What::kStep, step);
  }
  gather.end();
}

TEST_F(StallReporterTest, EndsARunThatHasStalledAndTellsWhere) {
  std::string said, where;
  StallReporter reporter(training_, {.end = 600s, .end_run = [&](const StallError& error, int) {
                                       said = error.what();
                                       where = origin_of(error)->what;
                                     }});
  GatherActivity gather("gather() of 'my records'");
  gather.begin();
  enter(What::kInput, 12);
  look(reporter, 0);
  look(reporter, 599);
  EXPECT_EQ(said, "");
  look(reporter, 600);
  EXPECT_EQ(said,
            "the run has stalled: step 12 has made no progress for 600 s: gather() of 'my "
            "records' has taken 600 s");
  EXPECT_EQ(where, "step 12: gather() of 'my records' has taken 600 s");
  gather.end();
}

TEST_F(StallReporterTest, EndsNoRunThatWritesACheckpointForLong) {
  bool ended = false;
  StallReporter reporter(training_,
                         {.end = 60s, .end_run = [&](const auto&, int) { ended = true; }});
  enter_callback(3);
  for (int s = 0; s < 1000; s += 50) {
    look(reporter, s);
    note_progress();  // a tensor of a checkpoint is written
  }
  EXPECT_FALSE(ended);
}

TEST_F(StallReporterTest, NeverWarnsOrEndsIfToldSo) {
  bool ended = false;
  StallReporter reporter(
      training_, {.warn = 0s, .end = 0s, .end_run = [&](const auto&, int) { ended = true; }});
  enter_callback(3);
  look(reporter, 0);
  EXPECT_THAT(look(reporter, 1e6), IsEmpty());
  EXPECT_FALSE(ended);
}

TEST_F(StallReporterTest, SaysOnceWhatASignalWaitsFor) {
  StallReporter reporter(training_, {});
  enter_callback(3);
  EXPECT_THAT(look(reporter, 0), IsEmpty());
  std::raise(SIGTERM);
  EXPECT_THAT(look(reporter, 0.1), IsEmpty());
  EXPECT_EQ(look(reporter, 1.2),
            "W SIGTERM: waiting for the callback own_program::Blocks::after_step at step 3; once "
            "more ends the program at once\n");
  EXPECT_THAT(look(reporter, 3), IsEmpty());
}

TEST_F(StallReporterTest, SaysWhatAStepWaitsForWhenTheTimeIsUp) {
  StallReporter reporter(training_, {.deadline = start_ + 5s, .end_run = [](const auto&, int) {}});
  enter(What::kStep, 7);
  EXPECT_THAT(look(reporter, 4), IsEmpty());
  EXPECT_THAT(look(reporter, 5), IsEmpty());
  EXPECT_EQ(look(reporter, 6),
            "W the time is up: waiting for step 7; if nothing moves for 10 s, the run ends without "
            "it\n");
}

// The ends of runs, as a reporter asked for them.
struct Ends {
  auto note() {
    return [this](const StallError& error, int request) {
      said.emplace_back(error.what());
      requests.push_back(request);
    };
  }
  std::vector<std::string> said;
  std::vector<int> requests;
};

TEST_F(StallReporterTest, EndsAHangingRunThatASignalAskedToEnd) {
  Ends ends;
  StallReporter reporter(training_, {.end_run = ends.note()});
  enter_callback(3);
  look(reporter, 0);
  std::raise(SIGINT);
  look(reporter, 7);
  look(reporter, 16.9);
  EXPECT_THAT(ends.said, IsEmpty());
  look(reporter, 17);
  look(reporter, 18);  // it ends once
  EXPECT_THAT(ends.said,
              ElementsAre("SIGINT, but the run has stalled: the callback "
                          "own_program::Blocks::after_step at step 3 has made no progress for 17 "
                          "s"));
  EXPECT_THAT(ends.requests, ElementsAre(SIGINT));
}

TEST_F(StallReporterTest, EndsAHangingRunWhoseTimeIsUp) {
  Ends ends;
  StallReporter reporter(training_, {.warn = 2s, .deadline = start_ + 5s, .end_run = ends.note()});
  enter(What::kInput, 7);
  look(reporter, 0);
  look(reporter, 5);
  look(reporter, 6.9);
  EXPECT_THAT(ends.said, IsEmpty());
  look(reporter, 7);
  ASSERT_EQ(ends.said.size(), 1u);
  EXPECT_THAT(ends.said[0], HasSubstr("the time is up, but the run has stalled: step 7 has made no "
                                      "progress for 7 s"));
  EXPECT_THAT(ends.requests, ElementsAre(SIGTERM));
}

// Steps as slow as those before, and ones in which something moves.
TEST_F(StallReporterTest, EndsNoSlowStepForARequest) {
  Ends ends;
  StallReporter reporter(training_, {.warn = 2s, .deadline = start_ + 20s, .end_run = ends.note()});
  enter(What::kStep, 1);
  look(reporter, 0);
  look(reporter, 8);
  enter(What::kStep, 2);  // the first took 8 s
  for (int s = 9; s < 36; ++s) look(reporter, s);
  EXPECT_THAT(ends.said, IsEmpty());
  note_progress();
  for (int s = 36; s < 100; ++s) look(reporter, s);
  EXPECT_THAT(ends.said, ElementsAre(HasSubstr("step 2 has made no progress for 54 s")));
}

TEST_F(StallReporterTest, EndsNoRunForARequestThatWritesACheckpoint) {
  Ends ends;
  StallReporter reporter(training_, {.deadline = start_, .end_run = ends.note()});
  enter_callback(3);
  auto write = std::make_unique<UnfinishedWrite>();
  for (int s = 0; s < 100; ++s) look(reporter, s);
  EXPECT_THAT(ends.said, IsEmpty());
  write.reset();
  look(reporter, 100);
  EXPECT_EQ(ends.said.size(), 1u);
}

TEST_F(StallReporterTest, OfOneOfSeveralProcessesLeavesStepsToTheGroup) {
  Ends ends;
  StallReporter reporter(training_,
                         {.end = 30s, .process = "rank 1, node7", .end_run = ends.note()});
  enter(What::kStep, 7);
  look(reporter, 0);
  EXPECT_THAT(look(reporter, 100), IsEmpty());
  enter_callback(7);
  look(reporter, 101);
  EXPECT_THAT(look(reporter, 120), AllOf(HasSubstr("W [rank 1, node7] the callback"),
                                         HasSubstr("has made no progress for 19 s")));
  EXPECT_THAT(ends.said, IsEmpty());
  look(reporter, 131);
  EXPECT_THAT(ends.said, ElementsAre(HasSubstr("at step 7 has made no progress for 30 s")));
  EXPECT_THAT(ends.requests, ElementsAre(0));
}

// What it waits for, another process names and ends.
TEST_F(StallReporterTest, OfOneOfSeveralProcessesBlamesNoProcessThatWaits) {
  Ends ends;
  bool waits = true;
  StallReporter reporter(training_, {.end = 30s,
                                     .process = "rank 1, node7",
                                     .waits_for_others = [&] { return waits; },
                                     .end_run = ends.note()});
  enter_callback(7);
  std::string told = look(reporter, 0);
  std::raise(SIGTERM);
  for (int s = 1; s < 100; ++s) told += look(reporter, s);
  EXPECT_THAT(told, IsEmpty());
  EXPECT_THAT(ends.said, IsEmpty());
  waits = false;
  look(reporter, 100);
  EXPECT_THAT(ends.said, IsEmpty());
  look(reporter, 110);
  EXPECT_THAT(ends.said, ElementsAre(HasSubstr("SIGTERM, but the run has stalled")));
}

// Nobody would come on: a request ends a wait in a circle, in a step or between two.
TEST_F(StallReporterTest, EndsProcessesThatWaitForEachOtherForARequest) {
  for (const What what : {What::kStep, What::kCallback}) {
    const StopSignals fresh;
    Ends ends;
    std::chrono::milliseconds wait = 0ms;
    StallReporter reporter(training_, {.warn = 4s,
                                       .process = "rank 1, node7",
                                       .waits_for_others = [] { return true; },
                                       .mutual_wait = [&] { return wait; },
                                       .end_run = ends.note()});
    if (what == What::kStep)
      enter(what, 7);
    else
      enter_callback(7);
    std::raise(SIGTERM);
    std::string told = look(reporter, 0);
    for (int s = 1; s < 50; ++s) told += look(reporter, s);
    EXPECT_THAT(told, IsEmpty());
    for (int s = 50; s < 60; ++s) {
      wait = std::chrono::seconds(s - 49);
      told += look(reporter, s);
    }
    EXPECT_THAT(told, HasSubstr("SIGTERM: waiting for "));
    EXPECT_THAT(ends.said, ElementsAre(HasSubstr("all processes wait for each other")));
    EXPECT_THAT(ends.requests, ElementsAre(SIGTERM));
  }
}

TEST_F(StallReporterTest, NamesWhatHangsBeforeThereIsATrainer) {
  Ends ends;
  StallReporter reporter(training_, {.warn = 2s, .end = 5s, .end_run = ends.note()});
  training_.enter({.what = What::kSetup, .hook = "reading the data", .step = 0});
  look(reporter, 0);
  EXPECT_EQ(look(reporter, 2), "W reading the data has made no progress for 2 s\n");
  look(reporter, 5);
  EXPECT_THAT(ends.said, ElementsAre("the run has stalled: reading the data has made no progress "
                                     "for 5 s"));
}

TEST_F(StallReporterTest, LeavesATrainingAloneThatHasEnded) {
  StallReporter reporter(training_, {});
  EXPECT_THAT(look(reporter, 100), IsEmpty());
  enter(What::kEnded, 1);
  EXPECT_THAT(look(reporter, 200), IsEmpty());
  EXPECT_THAT(look(reporter, 300), Not(HasSubstr("progress")));
}

}  // namespace stall_watch_test
}  // namespace belfry
