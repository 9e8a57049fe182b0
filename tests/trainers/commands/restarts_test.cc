#include "belfry/trainers/commands/restarts.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/support/programs.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace restarts_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> result;
  for (const std::string_view word : split(line, ' ')) result.emplace_back(word);
  return result;
}

TEST(Flags, OfACommandAreFoundInEachSpelling) {
  EXPECT_EQ(flag_in(words("mnist --run_dir=a"), "run_dir"), "a");
  EXPECT_EQ(flag_in(words("mnist --run-dir b --x=1"), "run_dir"), "b");
  EXPECT_EQ(flag_in(words("mnist --run_dir=a --run_dir=c-d"), "run_dir"), "c-d");
  EXPECT_EQ(flag_in(words("mnist --run_directory=a"), "run_dir"), std::nullopt);
  EXPECT_EQ(flag_in(words("--run_dir=a"), "run_dir"), std::nullopt);  // the program's name
}

TEST(Flags, OfACommandAreLeftOutWithTheirValues) {
  const std::string names[] = {"batch_size", "shards"};
  EXPECT_THAT(without_flags(words("mnist --batch-size 8 --seed=1 --shards=4 --epochs 2"), names),
              ElementsAre("mnist", "--seed=1", "--epochs", "2"));
}

// A run directory, and checkpoints as saved by a training with `shards` shards.
class RestartsTest : public testing::Test {
 protected:
  ~RestartsTest() override { remove_tree(local_file_system(), folder_); }

  void save(int step, int global_batch, int shards) {
    RunDirectory run(folder_);
    Graph graph;
    Session session(graph, {});
    JsonValue extra = JsonValue::object();
    extra.set("steps", step)
        .set("epoch", 0)
        .set("samples", 0)
        .set("seed", 1)
        .set("global_batch", global_batch)
        .set("shards", shards);
    save_checkpoint(session, run.checkpoint_path(step), extra);
    run.point(kLatestLink, step);
  }
  std::vector<std::string> command(const std::string& flags) const {
    return words(cat("mnist --run_dir=", folder_, flags));
  }

  const std::string folder_ = temporary_path(".restarts");
};

TEST_F(RestartsTest, WithoutACheckpointDoWhatTheFirstStartDid) {
  Restarts restarts(command(""), 4, 0);
  EXPECT_EQ(restarts.next().command, restarts.first().command);
  EXPECT_EQ(restarts.saved_step(), std::nullopt);
}

// A process that is killed before its first checkpoint leaves an empty folder.
TEST_F(RestartsTest, TakeAFolderWithoutCheckpointsForNone) {
  std::filesystem::create_directories(folder_ + "/checkpoints");
  Restarts restarts(command(" --devices=cpu:1"), 4, 2);
  EXPECT_EQ(restarts.next().command, restarts.first().command);
  EXPECT_EQ(restarts.saved_step(), std::nullopt);
}

TEST_F(RestartsTest, GoOnFromTheirOwnCheckpoint) {
  Restarts restarts(command(" --resume=elsewhere"), 4, 0);
  EXPECT_THAT(restarts.next().command,
              ElementsAre("mnist", "--run_dir=" + folder_, "--resume=elsewhere", "--overwrite"));
  save(7, 32, 8);
  EXPECT_THAT(restarts.next().command,
              ElementsAre("mnist", "--run_dir=" + folder_, "--resume=auto"));
  EXPECT_EQ(restarts.saved_step(), 7);
}

TEST_F(RestartsTest, DoNotTakeACheckpointOfARunBeforeForTheirOwn) {
  save(7, 32, 8);
  Restarts restarts(command(" --resume=never --overwrite"), 4, 0);
  EXPECT_EQ(restarts.next().command.back(), "--overwrite");
  EXPECT_EQ(restarts.saved_step(), std::nullopt);
  save(9, 32, 8);
  EXPECT_EQ(restarts.next().command.back(), "--resume=auto");
}

TEST_F(RestartsTest, GoOnWithAsManyAsDivideTheShardsAndThenWithAll) {
  Restarts restarts(command(" --devices=cpu:2 --batch_size=4"), 4, 1);
  save(7, 32, 8);
  const Start fewer = restarts.next();
  EXPECT_EQ(fewer.processes, 2);  // 3 x 2 devices do not divide 8 shards
  EXPECT_THAT(fewer.command, ElementsAre("mnist", "--run_dir=" + folder_, "--devices=cpu:2",
                                         "--global_batch_size=32", "--shards=8"));
  const Start all = restarts.next();
  EXPECT_EQ(all.processes, 4);
  EXPECT_EQ(all.command, command(" --devices=cpu:2 --batch_size=4"));
  EXPECT_EQ(restarts.next().processes, 2);
}

// Three devices with two shards each make sums that are no nodes of the tree over six shards.
TEST_F(RestartsTest, DoNotGoOnWithFewerToOtherBits) {
  save(7, 24, 6);
  Restarts restarts(command(" --devices=cpu:1"), 3, 1);
  save(9, 24, 6);
  const Start start = restarts.next();
  EXPECT_EQ(start.processes, 3);
  EXPECT_THAT(start.why_as_many, HasSubstr("must be powers of two"));
}

TEST_F(RestartsTest, SayWhyNoFewerGoOn) {
  Restarts restarts(command(" --devices=cpu:1"), 4, 3);
  EXPECT_THAT(restarts.next().why_as_many, HasSubstr("no checkpoint says yet"));
  save(7, 32, 8);
  const Start start = restarts.next();
  EXPECT_EQ(start.processes, 4);
  EXPECT_THAT(start.why_as_many, HasSubstr("no number of processes from 3 to 3"));
}

TEST(Restarts, WithFewerNeedARunDirectoryAndDevices) {
  EXPECT_THROW(Restarts(words("mnist --devices=cpu:1"), 4, 2), FlagError);
  EXPECT_THROW(Restarts(words("mnist --run_dir=a"), 4, 2), FlagError);
}

}  // namespace restarts_test
}  // namespace belfry
