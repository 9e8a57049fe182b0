// Runs that resume from saves in the memory of their hosts.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "belfry/framework/base/memory_folder.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/runs/find_in_memory.h"
#include "belfry/trainers/runs/memory_folders.h"
#include "belfry/trainers/runs/memory_saves.h"

namespace belfry {
namespace resumed_from_memory_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Runs of 16 steps, which are saved in memory after steps 4, 8 and 12, and lose the process before
// the step that is named.
class MemorySavesTest : public TrainingRunTest {
 protected:
  MemorySavesTest() {
    if (memory_file_system().empty()) skip_ = true;
  }
  ~MemorySavesTest() override {
    for (const std::string& folder : folders_) std::filesystem::remove_all(folder);
  }
  void SetUp() override {
    if (skip_) GTEST_SKIP() << "this machine has no files in memory";
  }

  std::vector<std::string> flags(std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"--devices=cpu:1", "--save_every_epochs=0", "--memory_save_every_steps=4"});
    return more;
  }
  // Returns where the run has left its saves.
  std::string lose_before(int step, std::vector<std::string> more = {}) {
    EXPECT_EQ(start(flags(std::move(more)), recipe_that_fails_at(step)).code, 1);
    folders_.push_back(memory_folder_of(run_id_of(directory_)));
    return folders_.back();
  }
  TrainResult go_on() {
    TrainResult done = start(flags());
    EXPECT_EQ(done.code, 0) << done.error;
    return done;
  }

  bool skip_ = false;
  std::vector<std::string> folders_;
};

TEST_F(MemorySavesTest, ARunGoesOnFromTheNewestSave) {
  const std::string folder = lose_before(6);
  EXPECT_THAT(checkpoints_in(local_file_system(), folder), ElementsAre(4));
  EXPECT_TRUE(is_private_folder(folder));
  EXPECT_THAT(go_on().out, HasSubstr(folder + "/checkpoints/step-00000004, after step 4"));
  EXPECT_EQ(summary()["resumed_from_step"], 4);
  EXPECT_FALSE(std::filesystem::exists(folder)) << "a run that has ended leaves none";
  expect_as_never_stopped(flags());
}

TEST_F(MemorySavesTest, ARunGoesOnFromTheDiskIfThatIsNewer) {
  lose_before(6, {"--save_every_steps=5"});
  go_on();
  EXPECT_EQ(summary()["resumed_from_step"], 5);
  expect_as_never_stopped(flags());
}

TEST_F(MemorySavesTest, ASaveThatIsDamagedIsSkipped) {
  const std::string folder = lose_before(5, {"--save_every_steps=3"});
  std::ofstream(checkpoint_in(folder, 4) + "/model.safetensors", std::ios::trunc) << "x";
  const TrainResult on = go_on();
  EXPECT_THAT(on.error, HasSubstr("skipped a damaged save in memory, which is now removed"));
  EXPECT_EQ(summary()["resumed_from_step"], 3);
  expect_as_never_stopped(flags());
}

TEST_F(MemorySavesTest, ASaveServesWhereTheDiskIsDamaged) {
  lose_before(5, {"--save_every_steps=3"});
  std::ofstream(checkpoint_in(directory_, 3) + "/manifest.json", std::ios::trunc) << "x";
  EXPECT_THAT(go_on().error, HasSubstr("no checkpoint on disk can be read, so the run needs "
                                       "its save in memory: "));
  EXPECT_EQ(summary()["resumed_from_step"], 4);
  expect_as_never_stopped(flags());
}

TEST_F(MemorySavesTest, ARunIsNotReplacedIfAllThatItSavedIsDamaged) {
  const std::string folder = lose_before(5, {"--save_every_steps=3"});
  for (const auto& [where, step] : {std::pair{folder, 4}, std::pair{directory_, 3}})
    std::ofstream(checkpoint_in(where, step) + "/manifest.json", std::ios::trunc) << "x";
  const TrainResult done = start(flags());
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, HasSubstr("step-00000003/manifest.json"));
  EXPECT_THAT(checkpoints_in(local_file_system(), directory_), ElementsAre(3));
}

TEST_F(MemorySavesTest, ALoneProcessStartsAnewIfItsOnlySaveIsDamaged) {
  const std::string folder = lose_before(5);
  std::ofstream(checkpoint_in(folder, 4) + "/model.safetensors", std::ios::trunc) << "x";
  EXPECT_THAT(go_on().error, HasSubstr("skipped a damaged save in memory, which is now removed"));
  EXPECT_TRUE(summary()["resumed_from_step"].is_null());
  expect_as_never_stopped(flags());
}

TEST_F(MemorySavesTest, ARunEndsBeforeASaveOfCopiesThatDiffer) {
  const TrainResult done =
      start(flags({"--devices=cpu:2", "--batch_size=4"}), recipe_that(6, [](Trainer& trainer) {
              const Variable w = trainer.built().nodes().towers[1].trainables[1];
              Tensor value = trainer.session().read(w);
              value.mutable_raw()[0] ^= std::byte{1};
              trainer.session().write(w, value);
            }));
  folders_.push_back(memory_folder_of(run_id_of(directory_)));
  EXPECT_EQ(done.code, 76) << done.error;
  EXPECT_THAT(done.error, HasSubstr("after step 8 the variable fc0/b on CPU:0 and its copy"));
  EXPECT_THAT(checkpoints_in(local_file_system(), folders_.back()), ElementsAre(4));
}

// Whatever was in memory belongs to the run that is no more.
TEST_F(MemorySavesTest, ANewRunInTheSameDirectoryTakesNone) {
  lose_before(6);
  EXPECT_EQ(start(flags({"--resume=never", "--overwrite"})).code, 0);
  EXPECT_TRUE(summary()["resumed_from_step"].is_null());
  std::filesystem::remove_all(directory_);
  lose_before(6);
  std::filesystem::remove_all(directory_);
  go_on();
  EXPECT_TRUE(summary()["resumed_from_step"].is_null());
}

// Nothing can resume from it.
TEST_F(MemorySavesTest, ARunThatFailsBeforeItsFirstSaveLeavesNothing) {
  EXPECT_FALSE(std::filesystem::exists(lose_before(3)));
}

TEST_F(MemorySavesTest, ALoneProcessKeepsNoneUnlessItIsTold) {
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe_that_fails_at(12)).code, 1);
  EXPECT_EQ(run_id_of(directory_), "");
}

// Their size is known before there is a run.
TEST_F(MemorySavesTest, APlanOfSeveralProcessesTellsTheirSize) {
  const auto plan = [&](const std::string& flag) {
    const TrainResult done = run_train(
        {"--dry_run", "--processes=2", "--devices=cpu:1", flag, "--json=" + json_.string()});
    EXPECT_EQ(done.code, 0) << done.error;
    return done.out;
  };
  EXPECT_THAT(plan("--zero_stage=0"), HasSubstr("of /dev/shm on each host, with --run_dir"));
  EXPECT_GT(report()["memory_saves_bytes"], 0);
  EXPECT_THAT(plan("--zero_stage=1"), Not(HasSubstr("/dev/shm"))) << "no process has it whole";
  EXPECT_EQ(report()["memory_saves_bytes"], 0);
}

TEST_F(MemorySavesTest, WhatRunsThatWereKilledHaveLeftIsRemovedAfterADay) {
  FileSystem& files = local_file_system();
  const auto make = [&](const char* id) {
    const std::string folder = memory_folder_of(cat(id, ::getpid()));
    folders_.push_back(folder);
    make_private_folder(folder);
    files.create_directory(folder + "/checkpoints/step-00000004");
    return folder;
  };
  const auto age = [](const std::string& folder) {
    std::filesystem::last_write_time(
        folder + "/checkpoints",
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  };
  const std::string dead = make("dead"), live = make("1"), young = make("2");
  age(dead);
  age(live);
  const std::unique_ptr<FileLock> lock = files.lock(cat(live, "/", kRunLock));
  EXPECT_EQ(start(flags()).code, 0);
  EXPECT_FALSE(files.exists(dead));
  EXPECT_TRUE(files.exists(live)) << "its lock is held";
  EXPECT_TRUE(files.exists(young)) << "it may start again";
}

TEST(MemorySaves, AreRefusedWhereTheyDoNotFit) {
  constexpr std::int64_t kMiB = 1 << 20;
  const MemoryNeeds fits{.state = kMiB, .room = 2 * kMiB, .planned = 5 * kMiB, .memory = 7 * kMiB};
  EXPECT_EQ(refusal_of_memory_saves(fits), "");
  MemoryNeeds needs = fits;
  --needs.room;
  EXPECT_THAT(refusal_of_memory_saves(needs),
              HasSubstr("/dev/shm has 2.00 MiB left, and the last 2 saves take 2.00 MiB"));
  needs = fits;
  needs.memory -= kMiB;
  EXPECT_THAT(refusal_of_memory_saves(needs),
              HasSubstr("take 7.00 MiB of memory, and this machine or its control group has 6.00"));
}

// Each host has a folder of its own in this test.
class HostsTest : public testing::Test {
 protected:
  HostsTest() {
    local_file_system().create_directory(run_);
    std::ofstream(run_ + "/config.json")
        << R"({"devices": "cpu:1", "chosen": {"trainer": "replicated", "run_id": "abcd"}})";
  }
  ~HostsTest() override { remove_tree(local_file_system(), folder_); }

  std::string root_of(const std::string& host) const { return cat(folder_, "/", host); }
  // Makes a save that has `size` bytes of a model.
  void save(const std::string& host, std::int64_t step, std::size_t size) const {
    const std::string root = root_of(host);
    local_file_system().create_directory(root);
    make_private_folder(memory_folder_of("abcd", root));
    const std::string path = checkpoint_in(memory_folder_of("abcd", root), step);
    local_file_system().create_directory(path);
    std::ofstream(path + "/model.safetensors") << std::string(size, 'w') << step;
    std::ofstream(path + "/manifest.json") << "{}";
  }
  // The paths that the processes of `hosts` hosts find, two on each, without their roots.
  std::vector<std::string> find(int hosts) const {
    std::vector<std::string> found(static_cast<std::size_t>(2 * hosts));
    for (int host = 0; host < hosts; ++host)
      local_file_system().create_directory(root_of(cat("host", host)));
    test::run_on_hosts(2 * hosts, 2, [&](const std::shared_ptr<Processes>& processes) {
      const std::string root = root_of(processes->host(processes->rank()));
      const std::string path = find_in_memory(processes.get(), run_, root);
      found[static_cast<std::size_t>(processes->rank())] =
          path.starts_with(root) ? path.substr(root.size()) : path;
      if (!path.empty()) {
        EXPECT_TRUE(local_file_system().exists(path));
      }
      processes->gather("");
    });
    return found;
  }
  std::string model_of(const std::string& host, std::int64_t step) const {
    const auto bytes = local_file_system().read(
        checkpoint_in(memory_folder_of("abcd", root_of(host)), step) + "/model.safetensors");
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  const std::string folder_ = temporary_path(".hosts"), run_ = folder_ + "/run";
};

TEST_F(HostsTest, TheNewestSaveReachesTheHostsThatLackIt) {
  constexpr std::size_t kSize = (std::size_t{16} << 20) + 100;  // more than a range
  save("host0", 20, 10);
  save("host1", 20, 10);
  save("host1", 30, kSize);
  const std::string path = memory_folder_of("abcd", "R").substr(1) + "/checkpoints/step-00000030";
  EXPECT_THAT(find(3), testing::Each(path)) << "a host is new";
  for (const char* const host : {"host0", "host1", "host2"})
    EXPECT_TRUE(model_of(host, 30) == std::string(kSize, 'w') + "30") << host;
  EXPECT_THAT(local_file_system().list(root_of("host2") + path.substr(0, path.rfind('/'))),
              ElementsAre("step-00000030"));
}

TEST_F(HostsTest, TheDiskIsTakenIfItIsNewer) {
  save("host1", 20, 10);
  local_file_system().create_directory(checkpoint_in(run_, 21));
  EXPECT_THAT(find(2), testing::Each(""));
}

TEST_F(HostsTest, NobodyHasASaveOfANewRun) { EXPECT_THAT(find(2), testing::Each("")); }

}  // namespace resumed_from_memory_test
}  // namespace belfry
