// What a run was told stays told, and what it has written is neither lost nor replaced.
#include <filesystem>
#include <fstream>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/runs/hash_log.h"

namespace belfry {
namespace training_run_keeps_test {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

// Whatever else is saved, training saves its last step, after the evaluation of its epoch.
TEST_F(TrainingRunTest, TakesItsLastStepForTheBest) {
  for (const char* const every : {"--save_every_epochs=2", "--save_every_epochs=0"}) {
    EXPECT_EQ(
        start({"--devices=cpu:1", "--epochs=3", every, "--best_metric=validation_loss:min"}).code,
        0);
    EXPECT_EQ(std::filesystem::read_symlink(directory_ + "/checkpoints/best"), "step-00000024")
        << every;
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(TrainingRunTest, KeepsItsBestCheckpointWhenTheFlagIsNotGivenAgain) {
  EXPECT_EQ(
      start({"--devices=cpu:1", "--keep=1", "--epochs=3", "--best_metric=validation_loss:max"})
          .code,
      0);
  EXPECT_THAT(checkpoints(), ElementsAre("best", "latest", "step-00000008", "step-00000024"));
  const TrainResult on = start({"--devices=cpu:1", "--epochs=6"});
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_THAT(checkpoints(), ElementsAre("best", "latest", "step-00000008", "step-00000048"));
  EXPECT_EQ(std::filesystem::read_symlink(directory_ + "/checkpoints/best"), "step-00000008");
  EXPECT_EQ(nlohmann::json::parse(text_in(directory_ + "/config.json"))["best_metric"],
            "validation_loss:max");
}

TEST_F(TrainingRunTest, RefusesAnotherMetricThanThatOfItsBestCheckpoint) {
  EXPECT_EQ(start({"--devices=cpu:1", "--keep=1", "--best_metric=validation_loss:max"}).code, 0);
  const std::string config = text_in(directory_ + "/config.json");
  const TrainResult refused =
      start({"--devices=cpu:1", "--epochs=3", "--best_metric=validation_loss:min"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(
      refused.error,
      AllOf(HasSubstr("--best_metric=validation_loss:min: the best checkpoint in "),
            HasSubstr("of step 8, is the best by validation_loss:max"), HasSubstr("(--run_dir)")));
  EXPECT_EQ(text_in(directory_ + "/config.json"), config);
  // Into another directory it may resume by another metric: the best checkpoint stays where it is.
  const std::string other = path(".other");
  const TrainResult on = run_train({"--devices=cpu:1", "--epochs=3", "--run_dir=" + other,
                                    "--best_metric=validation_loss:min", "--resume=" + directory_});
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_EQ(std::filesystem::read_symlink(other + "/checkpoints/best"), "step-00000024");
  std::filesystem::remove_all(other);
}

TEST_F(TrainingRunTest, KeepsAsManyCheckpointsAsItWasTold) {
  EXPECT_EQ(start({"--devices=cpu:1", "--save_every_steps=1", "--keep=100", "--max_steps=6"}).code,
            0);
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=8"}).code, 0);
  EXPECT_EQ(checkpoints().size(), 9u) << "all eight steps, and the link";
  EXPECT_EQ(nlohmann::json::parse(text_in(directory_ + "/config.json"))["keep"], 100);
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=9", "--keep=2"}).code, 0);
  EXPECT_THAT(checkpoints(), ElementsAre("latest", "step-00000008", "step-00000009"));
  const TrainResult replaced =
      start({"--devices=cpu:1", "--max_steps=3", "--resume=never", "--overwrite"});
  EXPECT_EQ(replaced.code, 0) << replaced.error;
  EXPECT_EQ(nlohmann::json::parse(text_in(directory_ + "/config.json"))["keep"], 3)
      << "of a new run";
}

TEST_F(TrainingRunTest, NotesHashesOnAndKeepsThoseFromBefore) {
  const auto steps = [&] {
    std::vector<int> all;
    std::ifstream file(directory_ + "/hashes.jsonl");
    for (std::string line; std::getline(file, line);)
      all.push_back(nlohmann::json::parse(line)["step"]);
    return all;
  };
  EXPECT_EQ(start({"--devices=cpu:1", "--hash_every=2", "--max_steps=4"}).code, 0);
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=6"}).code, 0);
  EXPECT_THAT(steps(), ElementsAre(2, 4, 6)) << "it stays told";
  EXPECT_EQ(start({"--devices=cpu:1", "--hash_every=0", "--max_steps=8"}).code, 0);
  EXPECT_EQ(start({"--devices=cpu:1", "--hash_every=1", "--max_steps=10"}).code, 0);
  EXPECT_THAT(steps(), ElementsAre(2, 4, 6, 9, 10));
}

// A run that is killed while it notes no hashes cuts off those of the steps that are made again.
TEST_F(TrainingRunTest, CutsHashesBackToItsCheckpointEvenIfItNotesNone) {
  const std::vector<std::string> flags{"--devices=cpu:1", "--hash_every=1", "--save_every_steps=3"};
  EXPECT_EQ(start(flags, recipe_that_fails_at(5)).code, 1);
  EXPECT_EQ(start({"--devices=cpu:1", "--hash_every=0", "--max_steps=6"}).code, 0);
  EXPECT_EQ(start({"--devices=cpu:1", "--hash_every=1", "--max_steps=7"}).code, 0);
  const std::string hashes = text_in(directory_ + "/hashes.jsonl");
  EXPECT_EQ(std::ranges::count(hashes, '\n'), 4) << "of steps 1, 2, 3 and 7";
}

TEST_F(TrainingRunTest, TrainsOnWithoutTheFlagThatStoppedItEarly) {
  const std::string stop = "--early_stop=validation_loss:max:2";
  EXPECT_EQ(start({"--devices=cpu:1", "--epochs=5", stop}).code, 0);
  EXPECT_EQ(summary()["steps"], 24);
  const TrainResult same = start({"--devices=cpu:1", "--epochs=5", stop});
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.out, AllOf(HasSubstr(stop + " stopped it after step 24 of 40"),
                              HasSubstr("leave --early_stop out"), Not(HasSubstr("are left"))));
  const TrainResult on = start({"--devices=cpu:1", "--epochs=5"});
  EXPECT_EQ(on.code, 0);
  EXPECT_THAT(on.out, AllOf(HasSubstr("16 steps are left"), Not(HasSubstr("has ended before"))));
  EXPECT_EQ(summary()["steps"], 40);
  expect_as_never_stopped({"--devices=cpu:1", "--epochs=5"});
}

TEST_F(TrainingRunTest, LeavesACheckpointWithAFileOfSomebodyElse) {
  const std::string mine = directory_ + "/checkpoints/step-00000002/notes.txt";
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=2"}).code, 0);
  std::ofstream(mine) << "text";
  const TrainResult on =
      start({"--devices=cpu:1", "--max_steps=8", "--save_every_steps=1", "--keep=1"});
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_EQ(text_in(mine), "text");
  EXPECT_THAT(checkpoints(), ElementsAre("latest", "step-00000002", "step-00000008"));
  const std::size_t first =
      on.error.find("step-00000002 has 'notes.txt', which no run has written");
  EXPECT_NE(first, std::string::npos) << on.error;
  EXPECT_EQ(on.error.find("notes.txt", first + 40), std::string::npos) << "told once";
  const TrainResult refused =
      start({"--devices=cpu:1", "--resume=never", "--overwrite", "--max_steps=1"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("--overwrite: "), HasSubstr("notes.txt")));
  EXPECT_THAT(checkpoints(), Contains("step-00000008"));
}

TEST_F(TrainingRunTest, NamesTheSaveThatWasUnderWay) {
  const TrainResult done =
      start({"--devices=cpu:1", "--save_every_steps=1"}, recipe_that_fails_at(11));
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, HasSubstr("step 11 is saved in "));
  EXPECT_THAT(std::string(summary()["error"]["kept"]), HasSubstr("step 11 is saved"));
}

TEST_F(TrainingRunTest, LogsWhatItPrintedFromTheFirstLineToTheError) {
  const TrainResult done = start({"--devices=cpu:1"}, recipe_that_fails_at(11));
  EXPECT_EQ(done.code, 1);
  const std::string log = text_in(directory_ + "/log.txt");
  std::string without_times;
  for (const std::string_view line : split(log, '\n')) {
    if (line.empty()) continue;
    ASSERT_THAT(std::string(line), testing::ContainsRegex("^[-0-9]+ [:0-9]+ [-+][0-9]+ "));
    constexpr std::size_t kTime = std::string_view("2026-11-28 16:41:53 +0000 ").size();
    without_times += cat(line.substr(kTime), "\n");
  }
  EXPECT_THAT(without_times, testing::StartsWith(done.out)) << "lines, and the times between them";
  EXPECT_THAT(without_times, HasSubstr(done.error));
  EXPECT_THAT(done.error, HasSubstr("error: the machine is down; step 8 is saved in "));
}

TEST_F(TrainingRunTest, RefusesToWriteReportsOverItsFiles) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=2"}).code, 0);
  const std::string stats = text_in(directory_ + "/stats.jsonl");
  const std::string link = path(".link");
  std::filesystem::create_symlink(directory_, link);
  for (const std::string& name :
       {directory_ + "/stats.jsonl", directory_ + "/./config.json", link + "/hashes.jsonl",
        directory_ + "/checkpoints/r.json", directory_ + "/tensorboard/../log.txt"})
    for (const char* const flag : {"--json=", "--trace_file=", "--memory_report="}) {
      const TrainResult refused =
          run_train({"--devices=cpu:1", "--max_steps=3", "--run_dir=" + directory_, flag + name});
      EXPECT_EQ(refused.code, 2) << flag << name;
      EXPECT_THAT(refused.error, HasSubstr(cat("error: ", flag, name,
                                               " would overwrite files of the run --run_dir=",
                                               directory_, "; write elsewhere")));
    }
  std::filesystem::remove(link);
  EXPECT_EQ(text_in(directory_ + "/stats.jsonl"), stats);
}

TEST_F(TrainingRunTest, RefusesToWriteReportsOverItsConfiguration) {
  const std::string config = path(".config");
  std::ofstream(config) << "{\"max_steps\": 2}";
  const TrainResult refused = run_train({"--config=" + config, "--json=" + config});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr(cat("--json=", config,
                                           " would overwrite what --config=", config, " reads")));
  EXPECT_EQ(text_in(config), "{\"max_steps\": 2}");
  std::filesystem::remove(config);
  // Its own configuration is no obstacle.
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=2"}).code, 0);
  EXPECT_EQ(start({"--config=" + directory_ + "/config.json", "--max_steps=3"}).code, 0);
}

TEST_F(TrainingRunTest, MakesTheFolderThatAReportIsToBeIn) {
  const std::string json = "--json=" + directory_ + "/x.json";
  const TrainResult bad =
      run_train({"--run_dir=" + directory_, json, "--max_steps=1", "--recompute=nosuch"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_FALSE(std::filesystem::exists(directory_)) << "of a refused start nothing stays";
  const TrainResult done = run_train({"--run_dir=" + directory_, json, "--max_steps=1"});
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_EQ(nlohmann::json::parse(text_in(directory_ + "/x.json"))["steps"], 1);
}

TEST_F(TrainingRunTest, KeepsHowItWasToldToTrainOnAndToCheck) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=1", "--check_replicas_every=2",
                   "--on_nonfinite=continue"})
                .code,
            0);
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=2"}).code, 0);
  auto kept = nlohmann::json::parse(text_in(directory_ + "/config.json"));
  EXPECT_EQ(kept["check_replicas_every"], 2);
  EXPECT_EQ(kept["on_nonfinite"], "continue");
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3", "--on_nonfinite=stop"}).code, 0);
  kept = nlohmann::json::parse(text_in(directory_ + "/config.json"));
  EXPECT_EQ(kept["on_nonfinite"], "stop");
}

TEST_F(TrainingRunTest, KeepsWhatItIsToldToWatch) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=1", "--log_gradient_norms",
                   "--histograms_every=2", "--histograms=*/b,gradients"})
                .code,
            0);
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=2"}).code, 0);
  const auto kept = nlohmann::json::parse(text_in(directory_ + "/config.json"));
  EXPECT_EQ(kept["log_gradient_norms"], true);
  EXPECT_EQ(kept["histograms_every"], 2);
  EXPECT_EQ(kept["histograms"], "*/b,gradients");
  const std::string stats = text_in(directory_ + "/stats.jsonl");
  const std::size_t second = stats.find("{\"step\":2");
  const auto line = nlohmann::json::parse(stats.substr(second, stats.find('\n', second) - second));
  EXPECT_GT(line["gradient_norm"], 0);
}

TEST_F(TrainingRunTest, NeedsNoLinks) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=2"}).code, 0);
  const std::string latest = directory_ + "/checkpoints/latest";
  std::filesystem::remove(latest);
  std::filesystem::create_symlink("latest", latest);
  const TrainResult on = start({"--devices=cpu:1", "--max_steps=3"});
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_EQ(std::filesystem::read_symlink(latest), "step-00000003");
}

// The run is started while another resumes from its checkpoint: the data are read in between.
TEST_F(TrainingRunTest, IsLookedAtAgainIfACheckpointIsGoneMeanwhile) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3", "--save_every_steps=1"}).code, 0);
  const std::string saved = directory_ + "/checkpoints/";
  std::filesystem::rename(saved + "step-00000003", path(".newest"));
  std::filesystem::remove_all(saved + "step-00000001");
  Recipe recipe = small_recipe();
  recipe.data = [&](bool train) {
    if (train) {
      std::filesystem::rename(path(".newest"), saved + "step-00000003");
      std::filesystem::remove_all(saved + "step-00000002");
    }
    return small_data(train);
  };
  const TrainResult on =
      run_train({"--devices=cpu:1", "--max_steps=4", "--resume=" + directory_}, recipe);
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_THAT(on.out, HasSubstr("after step 3; 1 steps are left"));
  // A checkpoint that was named is not replaced by another one.
  Recipe losing = small_recipe();
  losing.data = [&](bool train) {
    std::filesystem::remove_all(saved + "step-00000003");
    return small_data(train);
  };
  const TrainResult gone = run_train(
      {"--devices=cpu:1", "--max_steps=4", "--resume=" + saved + "step-00000003"}, losing);
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.error, HasSubstr("there is no checkpoint"));
}

TEST_F(TrainingRunTest, ItsConfigurationHasNoZeroBytesAndNoFlagTwice) {
  for (const auto& [text, why] :
       {std::pair(R"({"run_dir": "zq\u0000yy"})", "has a zero byte, which no flag can have"),
        {R"({"seed": "\u0000"})", "has a zero byte"},
        {R"({"se\u0000ed": 1})", "has a zero byte"},
        {R"({"seed": [1]})", "the value of 'seed' is no text, number, true or false"},
        {R"({"group": ["fc0:rate=2", {}]})", "the value of 'group' is no text"},
        {R"({"batch_size": 4, "batch-size": 2})",
         "'batch_size' and 'batch-size' are one flag; leave one of them out"}}) {
    std::ofstream(path(".bad")) << text;
    const TrainResult bad = run_train({"--config=" + path(".bad")});
    EXPECT_EQ(bad.code, 2) << text;
    EXPECT_THAT(bad.error, AllOf(HasSubstr(why), HasSubstr("--config=" + path(".bad")),
                                 HasSubstr("line 1, column ")));
  }
  EXPECT_FALSE(std::filesystem::exists("zq"));
  std::filesystem::remove(path(".bad"));
}

TEST_F(TrainingRunTest, ItsConfigurationMayListAFlagThatIsGivenSeveralTimes) {
  std::ofstream(path(".list")) << R"({"group": ["fc0:rate=2", "fc1:rate=3"]})";
  const TrainResult done = run_train({"--config=" + path(".list"), "--print_config"});
  EXPECT_THAT(done.out, HasSubstr(R"("group": "fc0:rate=2;fc1:rate=3")")) << done.error;
  std::filesystem::remove(path(".list"));
}

}  // namespace training_run_keeps_test
}  // namespace belfry
