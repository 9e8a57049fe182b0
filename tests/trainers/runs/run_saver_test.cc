// Whatever moment a machine dies at, a run directory holds a checkpoint that can be gone on from.
#include "belfry/trainers/runs/run_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace run_saver_test {

using testing::HasSubstr;

constexpr char kRun[] = "/disk/run";

// Trains six steps and saves after each, on a disk that may fail; "" or what it threw.
std::string train_on(MemoryFileSystem& disk, SaveSchedule schedule, std::int64_t& saved) {
  const auto data = smooth_data(24);
  MemoryFileSystem other("/stats");
  saved = -1;
  try {
    RunDirectory directory(kRun, disk);
    StatsLog stats(other, "/stats/stats.jsonl");
    const auto saver = std::make_shared<RunSaver>(directory, schedule, stats);
    // Steps whose checkpoints are known to be on the disk.
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
                     .callbacks = {saver, std::make_shared<Known>(*saver, saved)}},
                    *data);
    trainer.train();
    saved = saver->saved_step().value_or(-1);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The newest checkpoint that is whole; -1 for none.
std::int64_t newest_whole(MemoryFileSystem disk) {
  std::vector<std::int64_t> steps = checkpoints_in(disk, kRun);
  for (const std::int64_t step : steps) {
    // All that have their name are whole.
    const CheckpointInfo info = inspect_checkpoint(checkpoint_in(kRun, step), disk);
    EXPECT_EQ(info.extra.at("steps").integer(), step);
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
    if (error.empty()) continue;  // an old one could not be removed
    ++ended;
    EXPECT_THAT(error, HasSubstr(kFull)) << call;
    EXPECT_EQ(failing(OnSaveError::kContinue, call, saved), "") << call;
    went_on += saved == 6;
  }
  EXPECT_GT(ended, 5);
  EXPECT_EQ(went_on, ended);
}

TEST(RunDirectory, IsTidiedOfWhatKilledRunsLeft) {
  MemoryFileSystem disk("/disk");
  std::int64_t saved = -1;
  EXPECT_EQ(train_on(disk, {}, saved), "");
  RunDirectory directory(kRun, disk);
  const std::string folder = std::string(kRun) + "/checkpoints";
  const std::vector<std::string> before = disk.list(folder);
  for (const char* name : {"step-00000007.tmp-12-34", "step-00000007.belfry-old"})
    disk.create_directory(folder + "/" + name + "/inner");
  for (const char* name : {"step-00000006.lock", "latest.tmp-1-2"})
    disk.create(folder + "/" + name);
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
