// The files of training programs: checkpoints, reports, data.
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/runs/run_checkpoints.h"

namespace belfry {
namespace train_files_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainTest, SaysWhatARestoredRunDid) {
  std::filesystem::remove_all(path(".run"));
  const std::string one_device = "--devices=cpu:1";
  EXPECT_EQ(run_train({one_device, "--epochs=1", "--run_dir=" + path(".run")}).code, 0);
  const std::string restore = "--resume=" + path(".run");
  const TrainResult none =
      run_train({one_device, "--epochs=1", restore, "--json=" + json_.string()});
  EXPECT_EQ(none.code, 0) << none.error;
  EXPECT_THAT(none.out, HasSubstr("epoch 1, step 8: test"));
  EXPECT_THAT(none.out, AllOf(Not(HasSubstr("nan")), HasSubstr("\n  loss ")));
  EXPECT_TRUE(report()["loss"].is_number()) << "of the last step, which another run has made";
  const TrainResult one = run_train({one_device, "--max_steps=9", restore});
  EXPECT_EQ(one.code, 0) << one.error;
  EXPECT_THAT(one.out, HasSubstr("step 9/9  epoch 2/2"));
  EXPECT_THAT(one.out, Not(HasSubstr("examples/s ("))) << "of the first step of a run";
  std::filesystem::remove_all(path(".run"));
}

// Training for 3 steps, and then on to 8, equals training for 8 steps.
TEST_F(TrainTest, GoesOnFromACheckpointToTheSameBits) {
  const std::string checkpoint = path(".checkpoint"), json = "--json=" + json_.string();
  EXPECT_EQ(run_train({json}).code, 0);
  const std::string hash = report()["state_hash"];
  EXPECT_EQ(run_train({"--max_steps=3", "--run_dir=" + checkpoint, json}).code, 0);
  EXPECT_NE(report()["state_hash"], hash);
  const TrainResult result = run_train({"--resume=" + checkpoint, json});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("after step 3; 5 steps are left"), HasSubstr("step 8/8")));
  EXPECT_EQ(report()["state_hash"], hash);
  EXPECT_EQ(report()["steps"], 8);
  EXPECT_EQ(report()["epochs"], 2);
  std::filesystem::remove_all(checkpoint);
}

TEST_F(TrainTest, RestoresWhatOtherTrainersAndDevicesSaved) {
  const std::string checkpoint = path(".checkpoint"), json = "--json=" + json_.string();
  EXPECT_EQ(run_train({"--devices=cpu:4", "--batch_size=4", "--max_steps=3",
                       "--run_dir=" + checkpoint, json})
                .code,
            0);
  const std::string hash = report()["state_hash"];
  const double loss = report()["loss"];
  for (const char* devices : {"--devices=cpu:1", "--devices=cpu:2"})
    for (const char* trainer : {"--trainer=replicated", "--trainer=parameter_server"}) {
      const TrainResult result = run_train(
          {devices, trainer, "--batch_size=8", "--max_steps=3", "--resume=" + checkpoint, json});
      EXPECT_EQ(result.code, 0) << result.error;
      EXPECT_THAT(result.out, HasSubstr("nothing is left to train"));
      EXPECT_EQ(report()["state_hash"], hash) << devices << trainer;
      EXPECT_EQ(report()["steps"], 3);
      EXPECT_EQ(report()["replicas_equal"], true);
      EXPECT_EQ(report()["loss"], loss);
    }
  std::filesystem::remove_all(checkpoint);
}

TEST(Train, RefusesACheckpointBeforeTheDataAreRead) {
  const TrainResult restore = run_train({"--resume=/no/such/checkpoint"}, unreadable_recipe());
  EXPECT_EQ(restore.code, 1);
  EXPECT_THAT(restore.error, HasSubstr("error: --resume=/no/such/checkpoint: there is no "
                                       "checkpoint /no/such/checkpoint"));
}

// With a part of the optimizer's state, or with more, it would be another run.
TEST_F(TrainTest, GoesOnWithTheSameModelAndOptimizerAlone) {
  const std::string checkpoint = path(".checkpoint");
  Recipe adams = small_recipe();
  adams.optimizer = adam(1e-3);
  EXPECT_EQ(run_train({"--max_steps=1", "--run_dir=" + checkpoint}, adams).code, 0);
  const TrainResult other = run_train({"--resume=" + checkpoint});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.error, HasSubstr("the optimizer was adam and is now sgd"));
  adams.model = [](Tower& tower, Output x, Output y) {
    return smooth_model(tower, dense(tower, "more", x, {.units = 4}), y);
  };
  const TrainResult deeper = run_train({"--resume=" + checkpoint}, adams);
  EXPECT_EQ(deeper.code, 1);
  EXPECT_THAT(deeper.error,
              AllOf(HasSubstr("more/W"),
                    HasSubstr("training continues with the model and the optimizer of the run that "
                              "saved the checkpoint alone")));
  std::filesystem::remove_all(checkpoint);
}

// The trace is written in the middle of the run.
TEST_F(TrainTest, AnOutputThatFailsCostsNoCheckpoint) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const TrainResult result =
      run_train({"--max_steps=4", "--trace_file=/dev/full", "--json=" + json_.string(),
                 "--run_dir=" + path(".checkpoint")});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("--trace_file=/dev/full could not be written"));
  EXPECT_EQ(report()["steps"], 4);
  EXPECT_EQ(
      inspect_checkpoint(latest_checkpoint_of(path(".checkpoint"))).extra.at("steps").integer(), 4);
  std::filesystem::remove_all(path(".checkpoint"));
}

TEST_F(TrainTest, RefusesOneFileForTwoPurposes) {
  const std::string other = json_.parent_path() / "." / json_.filename();
  const TrainResult result = run_train({"--json=" + json_.string(), "--trace_file=" + other});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("--json=" + json_.string() + " and --trace_file=" + other),
                    HasSubstr("would overwrite each other")));
  EXPECT_FALSE(std::filesystem::exists(json_));
}

TEST_F(TrainTest, RefusesToOverwriteWhatItReads) {
  const std::string run = path(".run"), checkpoint = run + "/checkpoints/step-00000001";
  const std::string resume = "--resume=" + run;
  ASSERT_EQ(run_train({"--max_steps=1", "--run_dir=" + run}).code, 0);
  const std::vector<std::vector<std::string>> clashes{
      {resume, "--json=" + checkpoint + "/manifest.json"},
      {resume, "--trace_file=" + checkpoint + "/model.safetensors"},
      {"--allreduce=auto", "--links=" + json_.string(), "--json=" + json_.string()}};
  for (const std::vector<std::string>& flags : clashes) {
    const TrainResult result = run_train(flags, unreadable_recipe());
    EXPECT_EQ(result.code, 2) << result.error;
    for (const std::string& flag : flags)
      EXPECT_TRUE(flag == "--allreduce=auto" || result.error.find(flag) != flag.npos)
          << flag << ": " << result.error;
    EXPECT_THAT(result.error, HasSubstr("would overwrite"));
  }
  EXPECT_THAT(run_train({"--json=" + checkpoint + "/r.json"}, unreadable_recipe()).error,
              HasSubstr(checkpoint + " is a checkpoint, and would be one no longer"));
  for (const char* const file : {"config.json", "stats.jsonl", "summary.json"})
    EXPECT_THAT(run_train({"--json=" + run + "/" + file}, unreadable_recipe()).error,
                AllOf(HasSubstr("cannot be written: the run "), HasSubstr(file)))
        << "of another run";
  std::filesystem::remove_all(run);
}

TEST(Train, NamesWhatStandsInForARemovedFlag) {
  EXPECT_THAT(
      run_train({"--save_checkpoint=c"}).error,
      AllOf(HasSubstr("--save_checkpoint=c: this flag was removed"), HasSubstr("--run_dir=DIR")));
  EXPECT_THAT(run_train({"--restore_checkpoint=c"}).error,
              AllOf(HasSubstr("--restore_checkpoint=c: this flag was removed"),
                    HasSubstr("--resume=PATH"), HasSubstr("--load=PATH")));
  EXPECT_THAT(run_train({"--overwrite"}).error,
              HasSubstr("--overwrite is for what --run_dir replaces; name that, too"));
}

TEST_F(TrainTest, RefusesToOverwriteItsDataBeforeTheyAreRead) {
  write_text_file(local_file_system(), json_, "data");
  Recipe recipe = small_recipe();
  recipe.data = [this](const RunDirs&, bool) -> std::unique_ptr<Dataset> {
    return std::make_unique<LazyDataset>(
        small_data(true)->signature(),
        []() -> std::unique_ptr<Dataset> { throw IoError("the data were read"); },
        std::vector<std::string>{json_});
  };
  for (const char* const other : {"--max_steps=1", "--dry_run"}) {
    const TrainResult result =
        run_train({"--data_dir=d", "--json=" + json_.string(), other}, recipe);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.error,
                HasSubstr("--json=" + json_.string() + " would overwrite what --data_dir=d reads"));
  }
}

TEST(Train, RefusesAnUnwritableJsonBeforeTheDataAreRead) {
  Recipe recipe = small_recipe();
  bool read = false;
  recipe.data = [&](bool train) {
    read = true;
    return small_data(train);
  };
  const TrainResult result = run_train({"--json=/no/such/folder/r.json"}, recipe);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("--json=/no/such/folder/r.json"));
  EXPECT_FALSE(read);
}

TEST_F(TrainTest, KeepsAnExistingJsonWhenTrainingFails) {
  write_text_file(local_file_system(), json_, "{\"old\": 1}");
  EXPECT_EQ(run_train({"--batch_size=1000", "--json=" + json_.string()}).code, 2);
  EXPECT_EQ(report()["old"], 1);
}

TEST(Train, WritesJsonAloneToStdout) {
  const TrainResult result = run_train({"--max_steps=1", "--json=/dev/stdout"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(nlohmann::json::parse(result.out)["steps"], 1);
  EXPECT_THAT(result.error, HasSubstr("params_hash"));
}

TEST(Train, NamesTheBatchThatTheUserGave) {
  const TrainResult all = run_train({"--devices=cpu:2", "--global_batch_size=8192"});
  EXPECT_EQ(all.error,
            "error: --global_batch_size=8192 on 2 devices needs more samples in one step "
            "than the 70 of the data: global_batch_size can be at most 70\n");
  EXPECT_EQ(all.code, 2);
  EXPECT_THAT(run_train({"--devices=cpu:2", "--batch_size=4096"}).error,
              HasSubstr("--batch_size=4096 on each of 2 devices needs"));
}

TEST(Train, ReportsMissingFilesByName) {
  Recipe recipe = small_recipe();
  recipe.data = data::mnist;
  const TrainResult result = run_train({"--data_dir=/no/such/folder"}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, AllOf(HasSubstr("/no/such/folder/train-images-idx3-ubyte"),
                                  HasSubstr("(--data_dir)")));
}

}  // namespace train_files_test
}  // namespace belfry
