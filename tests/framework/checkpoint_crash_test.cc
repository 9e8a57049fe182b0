// The machine goes down at every single call of a save.
#include "belfry/framework/checkpoint.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/framework/memory_file_system.h"

namespace belfry {
namespace {

using ::testing::ElementsAre;

constexpr char kDisk[] = "/disk", kPath[] = "/disk/run", kOld[] = "/disk/run.old";

// A session whose variables, step and extra all say one number.
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
    save_checkpoint(session_, kPath, Json::object().set("number", number), disk);
  }

  // The number of the checkpoint that is there; 0 for none. All of it must agree.
  int restored(MemoryFileSystem& disk) {
    session_.write(w_, floats({-1, -1, -1}));
    CheckpointInfo info;
    try {
      info = restore_checkpoint(session_, kPath, disk);
    } catch (const NotFound&) {
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

  // Every disk that a crash may leave behind.
  template <class F>
  static void for_each_outcome(const MemoryFileSystem& disk, const F& f) {
    for (std::size_t changes = 0; changes <= disk.unsynced(); ++changes)
      for (const bool all_data : {true, false}) f(disk.after_crash(changes, all_data));
  }

  // Saves 2 over what `before` holds, which restores as `old`, with a crash at each call.
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
        // What was reported as saved is safe.
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

  Graph graph_;
  Variable w_, count_;
  Session session_{graph_};
};

TEST_F(CrashTest, AtAnyCallLeavesThePreviousCheckpointOrTheNewOne) {
  MemoryFileSystem disk(kDisk);
  save(disk, 1);
  crash_everywhere(disk.after_crash(disk.unsynced(), true), 1);
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

}  // namespace
}  // namespace belfry
