// What a saving run does to checkpoints that it finds, and to checkpoints that it loses.
#include "belfry/trainers/callbacks/save_checkpoint.h"

#include "belfry/tests/trainers/program/train_support.h"

namespace belfry {
namespace save_checkpoint_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Acts at the end of an epoch, after train() has done its work there.
struct AfterEpoch final : Callback {
  explicit AfterEpoch(std::function<void(const StepInfo&)> f) : act(std::move(f)) {}
  void after_epoch(Trainer&, const StepInfo& info) override { act(info); }
  std::function<void(const StepInfo&)> act;
};

// Runs have epochs of 4 steps.
class SaveCheckpointTest : public TrainTest {
 protected:
  ~SaveCheckpointTest() override {
    for (const std::string& file : left()) std::filesystem::remove_all(folder() / file);
  }
  std::filesystem::path folder() const { return json_.parent_path(); }
  // The names of the checkpoint and of the files beside it.
  std::vector<std::string> left() const {
    std::vector<std::string> names = local_file_system().list(folder().string());
    const std::string own = std::filesystem::path(checkpoint_).filename();
    std::erase_if(names, [&](const std::string& name) { return !name.starts_with(own); });
    return names;
  }
  std::string hash_of(const std::string& path) {
    run_train({"--devices=cpu:1", "--max_steps=1", "--restore_checkpoint=" + path, json_flag_});
    return report()["params_hash"];
  }
  static Recipe recipe_with(std::function<void(const StepInfo&)> act) {
    Recipe recipe = small_recipe();
    recipe.callbacks = {std::make_shared<AfterEpoch>(std::move(act))};
    return recipe;
  }
  // After a step at the rate of kWild the weights are finite, but useless.
  static Recipe steep_recipe() {
    Recipe recipe = small_recipe();
    recipe.model = [](Tower& tower, Output x, Output y) { return smooth_model(tower, x, y) * 1e3; };
    return recipe;
  }

  static constexpr char kWild[] = "--learning_rate=1e200";
  const std::string checkpoint_ = path(".checkpoint");
  const std::string save_ = "--save_checkpoint=" + checkpoint_;
  const std::string restore_ = "--restore_checkpoint=" + checkpoint_;
  const std::string json_flag_ = "--json=" + json_.string();
};

TEST_F(SaveCheckpointTest, ATestLossThatIsNotFiniteReplacesNoGoodCheckpoint) {
  EXPECT_EQ(run_train({"--max_steps=1", "--learning_rate=1e-5", save_}, steep_recipe()).code, 0);
  const std::string hash = hash_of(checkpoint_), beside = checkpoint_ + ".beside";
  for (const char* from : {"", "--seed=2"}) {
    std::vector<std::string> flags{"--max_steps=1", kWild, save_};
    if (*from) flags.emplace_back(from);
    const TrainResult result = run_train(flags, steep_recipe());
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.error,
                AllOf(HasSubstr("so the checkpoint " + checkpoint_ +
                                " of step 1 was kept; the present values are saved at " + beside),
                      HasSubstr("error: training diverged: the test loss is ")));
    EXPECT_EQ(hash_of(checkpoint_), hash);
    EXPECT_EQ(left().size(), 2u);
  }
  EXPECT_NE(hash_of(beside), hash);
  EXPECT_THAT(run_train({"--max_steps=1", "--restore_checkpoint=" + beside}, steep_recipe()).error,
              HasSubstr("had a test loss that was not finite after step 1"));
}

TEST_F(SaveCheckpointTest, ACheckpointOfABadTestLossIsReplaced) {
  EXPECT_EQ(run_train({"--max_steps=1", kWild, save_}, steep_recipe()).code, 1);
  const std::string first = hash_of(checkpoint_);
  EXPECT_EQ(run_train({"--max_steps=1", "--seed=2", kWild, save_}, steep_recipe()).code, 1);
  const std::string second = hash_of(checkpoint_);
  EXPECT_NE(second, first);
  EXPECT_EQ(run_train({"--learning_rate=1e-5", save_}, steep_recipe()).code, 0);
  EXPECT_NE(hash_of(checkpoint_), second);
  EXPECT_EQ(left().size(), 1u);
}

TEST_F(SaveCheckpointTest, WarnsBeforeItReplacesACheckpointOfMoreSteps) {
  EXPECT_THAT(run_train({"--max_steps=6", save_}).error, Not(HasSubstr("replaces")));
  const std::string why = "begins at step 0, and replaces step 6 of " + checkpoint_ + " by step ";
  const TrainResult again = run_train({save_});
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.error, HasSubstr(why + "4; to go on from that checkpoint, restore it"));
  EXPECT_THAT(run_train({"--epochs=3", restore_, save_}).error, Not(HasSubstr("replaces")));
  EXPECT_THAT(run_train({"--max_steps=1", save_}).error, HasSubstr("step 12 of "));
}

TEST_F(SaveCheckpointTest, SaysOfNoCheckpointThatItIsThereUnlessItIs) {
  const auto fail = [] { throw Error("no luck"); };
  const TrainResult there = run_train({save_}, recipe_with([&](const StepInfo&) { fail(); }));
  EXPECT_THAT(there.error, HasSubstr("no luck; the checkpoint " + checkpoint_ + " holds step 4"));
  const TrainResult moved = run_train({save_}, recipe_with([&](const StepInfo&) {
                                        std::filesystem::remove_all(checkpoint_);
                                        fail();
                                      }));
  EXPECT_THAT(moved.error, HasSubstr("no luck; step 4 was saved at " + checkpoint_ +
                                     " and has been removed since"));
  const std::string other = checkpoint_ + "_other";
  EXPECT_EQ(run_train({"--max_steps=1", "--save_checkpoint=" + other}).code, 0);
  const TrainResult replaced = run_train({save_}, recipe_with([&](const StepInfo&) {
                                           std::filesystem::remove_all(checkpoint_);
                                           std::filesystem::rename(other, checkpoint_);
                                           fail();
                                         }));
  EXPECT_THAT(replaced.error,
              HasSubstr(checkpoint_ + " holds step 1, which another save put in place of"));
}

TEST_F(SaveCheckpointTest, AStrayFileInACheckpointEndsNoTraining) {
  const std::string stray = checkpoint_ + "/notes", beside = checkpoint_ + ".beside";
  const auto drop = [&](const StepInfo& info) {
    if (info.epoch == 0) write_text_file(local_file_system(), stray, "mine");
    if (info.epoch == 2) std::filesystem::remove(stray);
  };
  const TrainResult lost = run_train({save_, json_flag_}, recipe_with(drop));
  EXPECT_EQ(lost.code, 1);
  EXPECT_THAT(lost.error, HasSubstr("error: " + save_ + ": " + checkpoint_ +
                                    " is a directory with "
                                    "'notes', which is no part of a checkpoint"));
  EXPECT_THAT(lost.error, HasSubstr("step 8 was saved at " + beside));
  EXPECT_EQ(report()["steps"], 8);
  EXPECT_EQ(inspect_checkpoint(checkpoint_).extra.at("steps").integer(), 4);
  EXPECT_EQ(inspect_checkpoint(beside).extra.at("steps").integer(), 8);
  EXPECT_TRUE(std::filesystem::remove(stray));
  EXPECT_EQ(run_train({"--epochs=3", "--restore_checkpoint=" + beside, save_}).code, 0);
  EXPECT_EQ(inspect_checkpoint(checkpoint_).extra.at("steps").integer(), 12);
  const TrainResult found = run_train({"--epochs=4", save_}, recipe_with(drop));
  EXPECT_EQ(found.code, 0) << "it was removed in time";
  const std::string told = "and training goes on";
  EXPECT_EQ(found.error.find(told), found.error.rfind(told)) << "once for two epochs";
  EXPECT_EQ(inspect_checkpoint(checkpoint_).extra.at("steps").integer(), 16);
}

TEST_F(SaveCheckpointTest, AnotherModelIsRefusedBeforeAnythingIsSaidOfTheBatch) {
  Recipe adams = small_recipe();
  adams.optimizer = adam(1e-3);
  EXPECT_EQ(run_train({"--max_steps=3", save_}, adams).code, 0);
  const TrainResult other = run_train({"--batch_size=10", "--seed=3", restore_});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.error, AllOf(HasSubstr("training goes on with the model"),
                                 Not(HasSubstr("does not divide")), Not(HasSubstr("seed"))));
}

}  // namespace save_checkpoint_test
}  // namespace belfry
