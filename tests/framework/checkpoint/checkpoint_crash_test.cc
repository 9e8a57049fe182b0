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

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSubsetOf;

constexpr char kDisk[] = "/disk", kPath[] = "/disk/run";

// A session whose variables, step and extra all hold one number.
class CrashTest : public ::testing::Test {
 protected:
  CrashTest() {
    w_ = variable(graph_, "w", {3}, {.initializer = init::zeros()});
    count_ = variable(graph_, "count", {},
                      {.dtype = DType::kI64, .initializer = init::zeros(), .trainable = false});
  }

  void save(MemoryFileSystem& disk, int number) {
    const auto value = static_cast<float>(number);
    session_.write(w_, floats({value, value, value}));
    session_.write(count_, Tensor(std::int64_t{number}));
    session_.set_step(static_cast<std::uint64_t>(number));
    save_checkpoint(session_, kPath, JsonValue::object().set("number", number), disk);
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

  // Saves 2 on an empty disk. Each call fails once, and the machine stays up. Calls f(disk, whether
  // the save succeeded); the last time, nothing failed.
  template <class F>
  void for_each_failure(const F& f) {
    bool waits = false;
    for (int call = 0; !waits && !HasFailure(); ++call) {
      SCOPED_TRACE(cat("failure at call ", call));
      MemoryFileSystem disk(kDisk);
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

TEST_F(CrashTest, AtAnyCallLeavesNoneOrTheWholeCheckpoint) {
  int outcomes = 0, call = 0;
  for (bool crashed = true; crashed && !HasFailure(); ++call) {
    SCOPED_TRACE(cat("crash at call ", call));
    MemoryFileSystem disk(kDisk);
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
      EXPECT_TRUE(found == 2 || (crashed && found == 0)) << "restored " << found;
      remove_tree(after, kPath);
      save(after, 3);
      EXPECT_EQ(restored(after), 3);
    });
  }
  EXPECT_GT(call, 15);
  EXPECT_GT(outcomes, 3 * call);
}

TEST_F(CrashTest, AFailureOfAnyCallLeavesNoneAndNoTemporaries) {
  int failed = 0, in_place = 0;
  for_each_failure([&](MemoryFileSystem disk, bool saved) {
    EXPECT_THAT(disk.list(kDisk), IsSubsetOf({"run"}));
    const int found = restored(disk);
    EXPECT_TRUE(found == 2 || (!saved && found == 0)) << "restored " << found;
    failed += !saved;
    in_place += !saved && found == 2;
  });
  EXPECT_GT(failed, 12);
  EXPECT_EQ(in_place, 1);  // the last sync failed
}

TEST_F(CrashTest, ARunDuringASaveIsReportedAndLeavesNoCheckpoint) {
  Node& step = assign_add(w_, constant(graph_, floats({1, 1, 1})));
  int refused = 0;
  bool waits = false;
  for (int call = 0; !waits; ++call) {
    SCOPED_TRACE(cat("run at call ", call));
    MemoryFileSystem disk(kDisk);
    disk.at_call(call, [&](MemoryFileSystem&) { session_.run({step}); });
    try {
      save(disk, 2);
      waits = disk.waits();
    } catch (const InvalidArgument& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr("was run while it was being saved to /disk/run"));
      EXPECT_THAT(disk.list(kDisk), IsEmpty());
    }
  }
  EXPECT_GT(refused, 8);  // two files are created, written in two parts or three, synced, closed
}

TEST_F(CrashTest, ARestoreOfOneThatIsReplacedMeanwhileReadsTheOneBeforeOrTheNewOne) {
  const MemoryFileSystem before = saved_disk();
  int old_ones = 0, new_ones = 0;
  bool waits = false;
  for (int call = 0; !waits && !HasFailure(); ++call) {
    SCOPED_TRACE(cat("save at call ", call));
    MemoryFileSystem disk = before.after_crash(0, true);
    disk.at_call(call, [&](MemoryFileSystem&) {
      remove_tree(disk, kPath);
      save(disk, 2);
    });
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
