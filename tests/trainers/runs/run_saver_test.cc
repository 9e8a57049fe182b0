// Whenever a machine dies, its run directory has a checkpoint from which a run can resume.
#include "belfry/trainers/runs/run_saver.h"

#include <atomic>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/threads.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/runs/stats_log.h"

namespace belfry {
namespace run_saver_test {

using testing::HasSubstr;

constexpr char kRun[] = "/disk/run";

constexpr char kStats[] = "/stats/stats.jsonl";

// Trains six steps and saves after each, on a disk that may fail. Lines of the run go to `lines`.
// Returns the error, or "".
std::string train_on(MemoryFileSystem& disk, SaveSchedule schedule, std::int64_t& saved,
                     MemoryFileSystem& lines) {
  const auto data = smooth_data(24);
  saved = -1;
  try {
    RunDirectory directory(kRun, disk);
    const auto log = std::make_shared<StatsLog>(lines, kStats, schedule.on_error);
    const auto saver = std::make_shared<RunSaver>(directory, schedule);
    saver->keep_in_step(log->file());
    // Notes the steps whose checkpoints are certainly on the disk.
    struct Known final : Callback {
      explicit Known(const RunSaver& s, std::int64_t& t) : saver(s), to(t) {}
      void after_step(Trainer&, const StepInfo&) override { to = saver.saved_step().value_or(-1); }
      const RunSaver& saver;
      std::int64_t& to;
    };
    Trainer trainer(find_trainer("simple"),
                    {.model = smooth_model,
                     .optimizer = sgd(0.1),
                     .batch_size = 4,
                     .epochs = 1,
                     .callbacks = {log, saver, std::make_shared<Known>(*saver, saved)}},
                    *data);
    trainer.train();
    saved = saver->saved_step().value_or(-1);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string train_on(MemoryFileSystem& disk, SaveSchedule schedule, std::int64_t& saved) {
  MemoryFileSystem lines("/stats");
  return train_on(disk, schedule, saved, lines);
}

int lines_in(MemoryFileSystem& disk) {
  if (!disk.exists(kStats)) return 0;
  const std::vector<std::byte> bytes = disk.read(kStats);
  return static_cast<int>(std::ranges::count(bytes, std::byte{'\n'}));
}

// The step of the newest whole checkpoint; -1 if there is none.
std::int64_t newest_whole(MemoryFileSystem disk) {
  std::vector<std::int64_t> steps = checkpoints_in(disk, kRun);
  for (const std::int64_t step : steps) {
    // Checkpoints with such a name are whole.
    const CheckpointInfo info = inspect_checkpoint(checkpoint_in(kRun, step), disk);
    EXPECT_EQ(info.extra.at("steps").integer(), step);
    read_checkpoint(checkpoint_in(kRun, step), disk);  // throws if it is damaged
  }
  return steps.empty() ? -1 : steps.back();
}

TEST(RunSaver, LosesNothingThatWasSavedWhateverCallTheMachineDiesAt) {
  int crashes = 0;
  for (int call = 0;; call += kSanitized ? 7 : 1) {
    MemoryFileSystem disk("/disk");
    disk.crash_at(call);
    std::int64_t saved = -1;
    train_on(disk, {.every_steps = 1, .keep = 2}, saved);
    if (!disk.crashed()) break;
    ++crashes;
    for (const std::size_t changes : {std::size_t{0}, disk.unsynced() / 2, disk.unsynced()})
      for (const bool all_data : {false, true})
        ASSERT_GE(newest_whole(disk.after_crash(changes, all_data)), saved) << call;
  }
  EXPECT_GT(crashes, kSanitized ? 10 : 60);
}

// Saves and crashes in random ways: at random steps and places, with random unsynced changes left.
void expect_nothing_lost(int crashes, unsigned seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 dice(seed);
  const auto any = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(dice);
  };
  for (int done = 0; done < crashes;) {
    const SaveSchedule schedule{.every_steps = any(1, 3),
                                .keep = any(1, 3),
                                .best = {any(0, 1) == 1 ? "loss" : ""},
                                .on_error = static_cast<OnSaveError>(any(0, 2)),
                                .retry_seconds = 0};
    MemoryFileSystem disk("/disk");
    const int call = any(0, 150);
    disk.crash_at(call);
    std::int64_t saved = -1;
    train_on(disk, schedule, saved);
    if (!disk.crashed()) continue;
    ++done;
    const auto changes = static_cast<std::size_t>(any(0, static_cast<int>(disk.unsynced())));
    ASSERT_GE(newest_whole(disk.after_crash(changes, any(0, 1) == 1)), saved) << call;
  }
}

TEST(RunSaver, LosesNothingAtRandomCrashes) {
  expect_nothing_lost(kSanitized ? 50 : 500, std::random_device{}());
}

TEST(RunSaver, LongLosesNothingInTenThousandCrashes) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers";
  expect_nothing_lost(10'000, std::random_device{}());
}

TEST(RunSaver, DoesAsItIsToldWhenItCannotSave) {
  const auto failing = [&](OnSaveError on_error, int call, std::int64_t& saved) {
    MemoryFileSystem disk("/disk");
    disk.fail_at(call);
    return train_on(disk, {.every_steps = 1, .on_error = on_error}, saved);
  };
  constexpr char kFull[] = "no space left on the disk";
  int ended = 0, went_on = 0;
  for (int call = 12; call < 60; call += 4) {
    std::int64_t saved = -1;
    const std::string error = failing(OnSaveError::kStop, call, saved);
    if (error.empty()) continue;  // only an old checkpoint could not be removed
    ++ended;
    EXPECT_THAT(error, HasSubstr(kFull)) << call;
    EXPECT_EQ(failing(OnSaveError::kContinue, call, saved), "") << call;
    went_on += saved == 6;
  }
  EXPECT_GT(ended, 5);
  EXPECT_EQ(went_on, ended);
}

// The disk is full for several saves.
TEST(RunSaver, TellsOnceThatSavesFailAndOnceThatTheySucceedAgain) {
  const auto count = [](const std::string& text, std::string_view part) {
    int found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
    return found;
  };
  int spells = 0;
  for (int length = 3; length < 40; ++length) {
    SCOPED_TRACE(length);
    MemoryFileSystem disk("/disk");
    int left = length;
    const std::function<void(MemoryFileSystem&)> full = [&](MemoryFileSystem& here) {
      if (--left > 0) here.at_call(0, full);
      throw IoError("no space left on the disk");
    };
    disk.at_call(32, full);
    std::int64_t saved = -1;
    testing::internal::CaptureStderr();
    const std::string error =
        train_on(disk, {.every_steps = 1, .on_error = OnSaveError::kContinue}, saved);
    const std::string told = testing::internal::GetCapturedStderr();
    if (!error.empty() || saved != 6) continue;  // the disk was full to the end
    const int failures = count(told, "could not be saved: ");
    EXPECT_LE(failures, 1) << told;
    EXPECT_EQ(count(told,
                    ", and training continues; further failures are not reported until a save "
                    "succeeds\n"),
              failures)
        << told;
    EXPECT_EQ(count(told, " is saved, after "), failures) << told;
    spells += count(told, " saves that failed");
  }
  EXPECT_GT(spells, 3) << "so many take longer than a save";
}

// Fails behind step 3, and has no time for more.
struct FailsAtStep3 final : Callback {
  void after_step(Trainer&, const StepInfo& info) override {
    require<Error>(info.step < 3, "rank 1, a: the connection was closed");
  }
};

// Trains and saves after step 3, where it fails, while `hook` sees each thread that is started.
// Returns the saver.
std::shared_ptr<RunSaver> failed_saver(MemoryFileSystem& disk, RunDirectory& directory,
                                       const ThreadHook& hook) {
  const auto data = smooth_data(24);
  const auto saver = std::make_shared<RunSaver>(directory, SaveSchedule{.every_steps = 3});
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model,
                   .optimizer = sgd(0.1),
                   .batch_size = 4,
                   .epochs = 1,
                   .callbacks = {saver, std::make_shared<FailsAtStep3>()}},
                  *data);
  set_thread_hook(hook);
  EXPECT_THROW(trainer.train(), Error);
  set_thread_hook({});
  EXPECT_EQ(newest_whole(disk.again()), 3);
  return saver;
}

// The error of the training names the step.
TEST(RunSaver, KnowsOfTheSaveInFlightWhenTheTrainingFails) {
  MemoryFileSystem disk("/disk");
  RunDirectory directory(kRun, disk);
  EXPECT_EQ(failed_saver(disk, directory, {})->saved_step(), 3);
}

// So whoever would end this process waits.
TEST(RunSaver, WritesOnAThreadThatTakesNoSignalsAndIsKnownToBeUnfinished) {
  MemoryFileSystem disk("/disk");
  RunDirectory directory(kRun, disk);
  int threads = 0;
  std::atomic<bool> unfinished = false;
  disk.at_call(20, [&](MemoryFileSystem&) { unfinished = UnfinishedWrite::any(); });
  failed_saver(disk, directory,
               [&](const ThreadUse& use) { threads += use.what == "a checkpoint"; });
  EXPECT_EQ(threads, 1) << "by start_thread()";
  EXPECT_TRUE(unfinished);
  EXPECT_FALSE(UnfinishedWrite::any());
}

TEST(RunSaver, WritesAtOnceWhereThereIsNoThreadLeft) {
  MemoryFileSystem disk("/disk");
  RunDirectory directory(kRun, disk);
  testing::internal::CaptureStderr();
  const auto saver = failed_saver(disk, directory, [](const ThreadUse& use) {
    if (use.what == "a checkpoint")
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(saver->saved_step(), 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("cannot start a thread for a checkpoint"));
}

TEST(RunSaver, SavesAgainBetweenTwoSavesThatAreDue) {
  // Step 3 is due, and the lines of its stats cannot be synced: step 4 is saved in its place.
  for (const auto& [on_error, expected] :
       {std::pair(OnSaveError::kRetry, std::vector<std::int64_t>{4, 6}),
        {OnSaveError::kContinue, {6}}}) {
    MemoryFileSystem disk("/disk"), lines("/stats");
    lines.at_call(4, [](MemoryFileSystem&) { throw IoError("no space left on the disk"); });
    std::int64_t saved = -1;
    testing::internal::CaptureStderr();
    EXPECT_EQ(
        train_on(disk, {.every_steps = 3, .on_error = on_error, .retry_seconds = 0}, saved, lines),
        "");
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("step 3 could not be saved: no space left on the disk"));
    EXPECT_FALSE(lines.waits());
    EXPECT_EQ(checkpoints_in(disk, kRun), expected);
    EXPECT_EQ(lines_in(lines), 6);
  }
}

// Any call may fail. Then the line waits, or the run ends, and earlier checkpoints stay.
TEST(RunSaver, TreatsLinesThatCannotBeWrittenAsASaveThatFails) {
  int ended = 0;
  for (int call = 0; call < 13; ++call) {
    SCOPED_TRACE(call);
    for (const OnSaveError on_error :
         {OnSaveError::kStop, OnSaveError::kRetry, OnSaveError::kContinue}) {
      MemoryFileSystem disk("/disk"), lines("/stats");
      lines.fail_at(call);
      std::int64_t saved = -1;
      testing::internal::CaptureStderr();
      const std::string error =
          train_on(disk, {.every_steps = 1, .keep = 9, .on_error = on_error}, saved, lines);
      const std::string told = testing::internal::GetCapturedStderr();
      if (lines.waits()) continue;  // there are not so many calls
      if (on_error == OnSaveError::kStop) {
        EXPECT_THAT(error, HasSubstr("no space left on the disk"));
        ++ended;
        const std::vector<std::int64_t> steps = checkpoints_in(disk, kRun);
        EXPECT_EQ(newest_whole(disk.again()), steps.empty() ? -1 : steps.back());
        EXPECT_GE(std::ssize(steps), lines_in(lines) - 1);
      } else {
        EXPECT_EQ(error, "");
        EXPECT_THAT(told, HasSubstr("no space left on the disk"));
        EXPECT_EQ(saved, 6);
        EXPECT_EQ(lines_in(lines), 6);
      }
    }
  }
  EXPECT_GT(ended, 8);
}

// The disk stays full. The run continues, and ends with an error.
TEST(RunSaver, EndsWithAnErrorIfLinesNeverGetToTheDisk) {
  MemoryFileSystem disk("/disk"), lines("/stats");
  const std::function<void(MemoryFileSystem&)> full = [&](MemoryFileSystem& here) {
    here.at_call(0, full);
    throw IoError("no space left on the disk");
  };
  lines.at_call(8, full);
  std::int64_t saved = -1;
  EXPECT_THAT(train_on(disk, {.every_steps = 2}, saved, lines),
              HasSubstr("step 6 could not be saved: no space left on the disk"));
  EXPECT_GE(newest_whole(disk.again()), saved);
  EXPECT_GE(saved, 2);
  EXPECT_GE(lines_in(lines = lines.again()), 4) << "what was written is not cut off";
}

// Adds a line after the save of the last epoch, as an evaluation does. The disk fails at it.
struct LastLine final : Callback {
  LastLine(LineFile& f, MemoryFileSystem& d, bool s) : file(f), disk(d), stays_full(s) {}
  void after_epoch(Trainer&, const StepInfo&) override {
    disk.at_call(0, [this](MemoryFileSystem& here) { fail(here); });
    file.add("{}\n");
  }
  void fail(MemoryFileSystem& here) const {
    if (stays_full) here.at_call(0, [this](MemoryFileSystem& next) { fail(next); });
    throw IoError("no space left on the disk");
  }
  LineFile& file;
  MemoryFileSystem& disk;
  const bool stays_full;
};

TEST(RunSaver, TriesTheLastLinesOnceMoreAndFailsIfTheyAreLost) {
  for (const bool stays_full : {false, true}) {
    MemoryFileSystem disk("/disk"), lines("/stats");
    RunDirectory directory(kRun, disk);
    const auto log = std::make_shared<StatsLog>(lines, kStats);
    const auto saver = std::make_shared<RunSaver>(directory, SaveSchedule{});
    saver->keep_in_step(log->file());
    const auto last = std::make_shared<LastLine>(log->file(), lines, stays_full);
    const auto data = smooth_data(24);
    Trainer trainer(find_trainer("simple"),
                    {.model = smooth_model,
                     .optimizer = sgd(0.1),
                     .batch_size = 4,
                     .epochs = 1,
                     .callbacks = {log, saver, last}},
                    *data);
    std::string error;
    testing::internal::CaptureStderr();
    try {
      trainer.train();
    } catch (const IoError& thrown) {
      error = thrown.what();
    }
    testing::internal::GetCapturedStderr();
    MemoryFileSystem after = lines.again();
    EXPECT_EQ(lines_in(after), stays_full ? 6 : 7);
    EXPECT_THAT(error,
                stays_full ? HasSubstr("the lines after the last save are lost") : HasSubstr(""));
    EXPECT_EQ(error.empty(), !stays_full);
  }
}

TEST(RunSaver, NotesWhereTheLinesOfAStepEnd) {
  MemoryFileSystem disk("/disk"), lines("/stats");
  std::int64_t saved = -1;
  EXPECT_EQ(train_on(disk, {.every_steps = 2, .keep = 9}, saved, lines), "");
  const std::vector<std::byte> all = lines.read(kStats);
  for (const std::int64_t step : {6, 4, 2}) {  // again() shares files with `lines`
    const JsonValue positions = line_positions(inspect_checkpoint(checkpoint_in(kRun, step), disk));
    MemoryFileSystem again = lines.again();
    LineFile file(again, kStats, OnSaveError::kStop);
    file.go_on(positions);
    file.add("");
    EXPECT_EQ(lines_in(again), step);
    const std::vector<std::byte> kept = again.read(kStats);
    EXPECT_TRUE(std::ranges::equal(kept, std::span(all).first(kept.size())));
  }
  LineFile other(lines, "/stats/other.jsonl", OnSaveError::kStop);
  other.go_on(JsonValue::object());
  other.add("one\n");
  EXPECT_EQ(lines.read("/stats/other.jsonl").size(), 4u);
  other.add("half of a line");
  other.go_on(JsonValue::object());
  other.add("two\n");
  EXPECT_EQ(lines.read("/stats/other.jsonl").size(), 8u) << "a checkpoint without a note cuts none";
  EXPECT_THROW(other.go_on(JsonValue::object().set("other.jsonl", -1)), InvalidArgument);
}

TEST(RunSaver, NamesWhatFollowsAFailure) {
  for (const char* name : {"stop", "retry", "continue"})
    EXPECT_EQ(name_of(find_on_save_error(name)), name);
  EXPECT_THROW(find_on_save_error("wait"), InvalidArgument);
}

TEST(RunSaver, NeedsNoLinks) {
  MemoryFileSystem disk("/disk");
  disk.refuse_links();
  std::int64_t saved = -1;
  EXPECT_EQ(train_on(disk, {.every_steps = 1, .keep = 2, .best = {"loss"}}, saved), "");
  EXPECT_EQ(saved, 6);
  EXPECT_EQ(newest_whole(disk.again()), 6);
  EXPECT_FALSE(disk.exists(std::string(kRun) + "/checkpoints/latest"));
}

TEST(RunDirectory, IsTidiedOfWhatKilledRunsLeft) {
  MemoryFileSystem disk("/disk");
  std::int64_t saved = -1;
  EXPECT_EQ(train_on(disk, {}, saved), "");
  RunDirectory directory(kRun, disk);
  const std::string folder = std::string(kRun) + "/checkpoints";
  const std::vector<std::string> before = disk.list(folder);
  disk.create_directory(folder + "/step-00000007.tmp-12-34");
  disk.create(folder + "/step-00000007.tmp-12-34/manifest.json");
  disk.create(folder + "/latest.tmp-1-2");
  disk.create(folder + "/notes.txt");
  directory.tidy();
  std::vector<std::string> after = disk.list(folder);
  std::erase(after, "notes.txt");
  EXPECT_EQ(after, before);
  EXPECT_TRUE(disk.exists(folder + "/notes.txt"));
}

TEST(RunDirectory, KnowsTheNamesOfCheckpoints) {
  EXPECT_EQ(step_of_checkpoint("step-00000012"), 12);
  EXPECT_EQ(step_of_checkpoint("step-123456789"), 123456789);
  for (const char* name : {"step-12", "step-", "step-0000001x", "step-00000012.lock", "latest",
                           "step--0000001", "step-000000012"})
    EXPECT_FALSE(step_of_checkpoint(name)) << name;
}

}  // namespace run_saver_test
}  // namespace belfry
