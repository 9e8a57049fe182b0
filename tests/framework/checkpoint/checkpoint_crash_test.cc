// The machine goes down, or the disk fails, at every single call of a save.
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace checkpoint_crash_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

constexpr char kDisk[] = "/disk", kPath[] = "/disk/run", kOld[] = "/disk/run.belfry-old";

// A session whose variables, step and extra all hold one number.
class CrashTest : public ::testing::Test {
 protected:
  CrashTest() {
    w_ = variable(graph_, "w", {3}, {.initializer = init::zeros()});
    count_ = variable(graph_, "count", {},
                      {.dtype = DType::kI64, .initializer = init::zeros(), .trainable = false});
  }

  std::string save(MemoryFileSystem& disk, int number, const SaveOptions& options = {}) {
    const auto value = static_cast<float>(number);
    session_.write(w_, floats({value, value, value}));
    session_.write(count_, Tensor(std::int64_t{number}));
    session_.set_step(static_cast<std::uint64_t>(number));
    return save_checkpoint(session_, kPath, JsonValue::object().set("number", number), disk,
                           options);
  }

  // The number of the checkpoint on the disk; 0 for none. All of it must agree.
  int restored(MemoryFileSystem& disk) {
    session_.write(w_, floats({-1, -1, -1}));
    CheckpointInfo info;
    try {
      info = restore_checkpoint(session_, kPath, disk);
    } catch (const NotFoundError&) {
      EXPECT_EQ(session_.read(w_), floats({-1, -1, -1}));
      return 0;
    }
    const auto number = static_cast<int>(info.extra.at("number").integer());
    const auto value = static_cast<float>(number);
    EXPECT_EQ(session_.read(w_), floats({value, value, value}));
    EXPECT_EQ(session_.read(count_), Tensor(std::int64_t{number}));
    EXPECT_EQ(session_.step(), static_cast<std::uint64_t>(number));
    return number;
  }

  // Calls f with every disk that a crash may leave behind.
  template <class F>
  static void for_each_outcome(const MemoryFileSystem& disk, const F& f) {
    for (std::size_t changes = 0; changes <= disk.unsynced(); ++changes)
      for (const bool all_data : {true, false}) f(disk.after_crash(changes, all_data));
  }

  // Saves 2 over the disk `before`, which restores as `old`, with a crash at each call.
  void crash_everywhere(const MemoryFileSystem& before, int old) {
    int outcomes = 0, call = 0;
    for (bool crashed = true; crashed; ++call) {
      SCOPED_TRACE(cat("crash at call ", call));
      MemoryFileSystem disk = before.after_crash(0, true);
      disk.crash_at(call);
      try {
        save(disk, 2);
      } catch (const Crash&) {
      }
      crashed = disk.crashed();
      for_each_outcome(disk, [&](MemoryFileSystem after) {
        ++outcomes;
        const int found = restored(after);
        // A checkpoint that was reported as saved is safe.
        EXPECT_TRUE(found == 2 || (crashed && found == old)) << "restored " << found;
        save(after, 3);
        EXPECT_EQ(restored(after), 3);
        EXPECT_THAT(after.list(kDisk), ElementsAre("run"));
      });
      if (HasFailure()) return;
    }
    EXPECT_GT(call, 20);
    EXPECT_GT(outcomes, 3 * call);
  }

  // Saves 2 over the disk `before`. Each call fails once, and the machine stays up. Calls f(disk,
  // whether the save succeeded); the last time, nothing failed.
  template <class F>
  void for_each_failure(const MemoryFileSystem& before, const F& f) {
    bool waits = false;
    for (int call = 0; !waits && !HasFailure(); ++call) {
      SCOPED_TRACE(cat("failure at call ", call));
      MemoryFileSystem disk = before.after_crash(0, true);
      disk.fail_at(call);
      bool saved = true;
      try {
        save(disk, 2);
      } catch (const IoError& error) {
        EXPECT_THAT(error.what(), HasSubstr("no space left"));
        saved = false;
      }
      waits = disk.waits();
      f(disk.again(), saved);
    }
  }

  // The disk restores as `old` before the save.
  void fail_everywhere(const MemoryFileSystem& before, int old) {
    int failed = 0, in_place = 0;
    for_each_failure(before, [&](MemoryFileSystem disk, bool saved) {
      // A lock that cannot be removed keeps nobody out.
      EXPECT_THAT(disk.list(kDisk), IsSubsetOf({"run", "run.lock", "run.belfry-old"}));
      const int found = restored(disk);
      EXPECT_TRUE(found == 2 || (!saved && found == old)) << "restored " << found;
      failed += !saved;
      in_place += !saved && found == 2;
      save(disk, 3);
      EXPECT_EQ(restored(disk), 3);
      EXPECT_THAT(disk.list(kDisk), ElementsAre("run"));
    });
    EXPECT_GT(failed, 15);
    EXPECT_EQ(in_place, 1);  // the last sync failed
  }

  // A disk with checkpoint 1, synced.
  MemoryFileSystem saved_disk() {
    MemoryFileSystem disk(kDisk);
    save(disk, 1);
    return disk.after_crash(disk.unsynced(), true);
  }

  Graph graph_;
  Variable w_, count_;
  Session session_{graph_};
};

TEST_F(CrashTest, AtAnyCallLeavesThePreviousCheckpointOrTheNewOne) {
  MemoryFileSystem disk(kDisk);
  save(disk, 1);
  crash_everywhere(disk.after_crash(disk.unsynced(), true), 1);
}

TEST_F(CrashTest, WhileACheckpointIsPutBackLeavesOneOfBoth) {
  bool crashed = true;
  for (int call = 0; crashed && !HasFailure(); ++call) {
    SCOPED_TRACE(cat("crash at call ", call));
    MemoryFileSystem disk = saved_disk();
    const std::string manifest = save(disk, 2, {.keep_old = true});
    EXPECT_THAT(disk.list(kDisk), ElementsAre("run", "run.belfry-old"));
    disk = disk.after_crash(disk.unsynced(), true);
    disk.crash_at(call);
    try {
      EXPECT_TRUE(settle_checkpoint(kPath, manifest, /*keep_new=*/false, disk));
    } catch (const Crash&) {
    }
    crashed = disk.crashed();
    for_each_outcome(disk, [&](MemoryFileSystem after) {
      const int found = restored(after);
      EXPECT_TRUE(found == 1 || (crashed && found == 2)) << "restored " << found;
      save(after, 3);
      EXPECT_EQ(restored(after), 3);
      EXPECT_THAT(after.list(kDisk), ElementsAre("run"));
    });
  }
}

TEST_F(CrashTest, OfNobodyAKeptCheckpointStaysUntilItIsSettled) {
  MemoryFileSystem disk = saved_disk();
  const std::string second = save(disk, 2, {.keep_old = true});
  EXPECT_TRUE(settle_checkpoint(kPath, second, /*keep_new=*/true, disk));
  EXPECT_EQ(restored(disk), 2);
  EXPECT_THAT(disk.list(kDisk), ElementsAre("run"));
  EXPECT_FALSE(settle_checkpoint(kPath, second, /*keep_new=*/false, disk)) << "none is left";
  const std::string third = save(disk, 3, {.keep_old = true});
  save(disk, 4, {.keep_old = true});
  EXPECT_FALSE(settle_checkpoint(kPath, third, /*keep_new=*/false, disk)) << "another one saved";
  EXPECT_EQ(restored(disk), 4);
}

TEST_F(CrashTest, OfTheFirstSaveLeavesNoneOrTheNewOne) {
  crash_everywhere(MemoryFileSystem(kDisk), 0);
}

TEST_F(CrashTest, AfterACrashBetweenTheRenamesKeepsTheOldCheckpoint) {
  MemoryFileSystem disk(kDisk);
  save(disk, 1);
  disk.rename(kPath, kOld);
  disk.sync_directory(kDisk);
  crash_everywhere(disk.after_crash(disk.unsynced(), true), 1);
}

TEST_F(CrashTest, WithBothAnOldCheckpointAndANewerOneKeepsTheNewerOne) {
  MemoryFileSystem disk(kDisk);
  save(disk, 7);
  disk.rename(kPath, kOld);
  save(disk, 1);
  disk.create_directory(kOld);  // a part of it
  disk.create(cat(kOld, "/model.safetensors"));
  for (const char* directory : {kOld, kDisk}) disk.sync_directory(directory);
  crash_everywhere(disk.after_crash(disk.unsynced(), true), 1);
}

TEST_F(CrashTest, AFailureOfAnyCallLeavesThePreviousCheckpointAndNoTemporaries) {
  fail_everywhere(saved_disk(), 1);
}

TEST_F(CrashTest, AFailureOfAnyCallOfTheFirstSaveLeavesNoCheckpoint) {
  fail_everywhere(MemoryFileSystem(kDisk), 0);
}

TEST_F(CrashTest, AFailureOfAnyCallKeepsAnOldCheckpointThatHasNoNewer) {
  MemoryFileSystem disk = saved_disk();
  disk.rename(kPath, kOld);
  disk.sync_directory(kDisk);
  fail_everywhere(disk, 1);
}

TEST_F(CrashTest, ACheckpointInPlaceIsSavedThoughTheOneBeforeStaysBehind) {
  int stayed = 0;
  for_each_failure(saved_disk(), [&](MemoryFileSystem disk, bool saved) {
    if (!saved || !disk.exists(kOld)) return;
    ++stayed;
    EXPECT_EQ(restored(disk), 2);
  });
  EXPECT_GT(stayed, 5);  // its kind, its names, three files, itself
}

TEST_F(CrashTest, WhatCannotBeRemovedOfAKilledWriterStopsNoSave) {
  MemoryFileSystem before(kDisk);
  const std::string stale = cat(kPath, ".tmp-1-2");
  before.create_directory(stale);
  before.sync_directory(kDisk);
  int stayed = 0;
  for_each_failure(before, [&](MemoryFileSystem disk, bool saved) {
    if (!saved || !disk.exists(stale)) return;
    ++stayed;
    EXPECT_EQ(restored(disk), 2);
    save(disk, 3);
    EXPECT_THAT(disk.list(kDisk), ElementsAre("run"));
  });
  EXPECT_GT(stayed, 2);  // its kind, its names, itself
}

TEST_F(CrashTest, ARunDuringASaveIsReportedAndLeavesThePreviousCheckpoint) {
  const MemoryFileSystem before = saved_disk();
  Node& step = assign_add(w_, constant(graph_, floats({1, 1, 1})));
  int refused = 0;
  bool waits = false;
  for (int call = 0; !waits; ++call) {
    SCOPED_TRACE(cat("run at call ", call));
    MemoryFileSystem disk = before.after_crash(0, true);
    disk.at_call(call, [&](MemoryFileSystem&) { session_.run({step}); });
    try {
      save(disk, 2);
      waits = disk.waits();
    } catch (const InvalidArgument& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("was run while it was being saved to /disk/run"));
      EXPECT_THAT(disk.list(kDisk), ElementsAre("run"));
      EXPECT_EQ(restored(disk), 1);
    }
  }
  EXPECT_GT(refused, 8);  // two files are created, written in two parts or three, synced, closed
}

TEST_F(CrashTest, ARestoreDuringASaveReadsTheOneBeforeOrTheNewOne) {
  const MemoryFileSystem before = saved_disk();
  int old_ones = 0, new_ones = 0;
  bool waits = false;
  for (int call = 0; !waits && !HasFailure(); ++call) {
    SCOPED_TRACE(cat("save at call ", call));
    MemoryFileSystem disk = before.after_crash(0, true);
    disk.at_call(call, [&](MemoryFileSystem&) { save(disk, 2); });
    const int found = restored(disk);
    waits = disk.waits();
    ++(found == 1 ? old_ones : new_ones);
    EXPECT_TRUE(found == 1 || found == 2) << found;
  }
  EXPECT_GT(new_ones, 10);  // of the first manifest, and up to the last file
  EXPECT_GT(old_ones, 0);   // the last time, nothing was saved
}

TEST_F(CrashTest, TheDiskOfTheseTestsForgetsWhatIsNotSynced) {
  MemoryFileSystem disk(kDisk);
  const std::byte bytes[4] = {};
  const auto file = disk.create("/disk/a");
  file->append(bytes);
  EXPECT_EQ(disk.unsynced(), 1u);
  EXPECT_FALSE(disk.after_crash(0, true).exists("/disk/a"));
  EXPECT_EQ(disk.after_crash(1, true).read("/disk/a").size(), 4u);
  EXPECT_EQ(disk.after_crash(1, false).read("/disk/a").size(), 0u);
  file->sync();
  disk.sync_directory(kDisk);
  EXPECT_EQ(disk.after_crash(0, false).read("/disk/a").size(), 4u);
  disk.rename("/disk/a", "/disk/b");
  EXPECT_TRUE(disk.after_crash(0, true).exists("/disk/a"));
  EXPECT_TRUE(disk.after_crash(1, true).exists("/disk/b"));
  disk.crash_at(0);
  EXPECT_THROW(file->append(bytes), Crash);
  EXPECT_THROW(disk.exists("/disk/b"), Crash);
  EXPECT_EQ(disk.after_crash(0, true).read("/disk/a").size(), 6u);
}

}  // namespace checkpoint_crash_test
}  // namespace belfry
