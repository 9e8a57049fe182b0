// Runs that resume, and the content of their directory.
#include "belfry/trainers/program/training_run.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/run_support.h"

namespace belfry {
namespace training_run_test {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

TEST_F(TrainingRunTest, KeepsWhatItDid) {
  const TrainResult done = start({"--devices=cpu:1"});
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(local_file_system().list(directory_),
              IsSupersetOf({"checkpoints", "config.json", "log.txt", "placement.txt", "stats.jsonl",
                            "summary.json", "tensorboard"}));
  EXPECT_EQ(local_file_system().list(directory_ + "/tensorboard"),
            (std::vector<std::string>{"train", "validation"}));
  EXPECT_THAT(checkpoints(), ElementsAre("latest", "step-00000008", "step-00000016"));
  EXPECT_EQ(std::filesystem::read_symlink(directory_ + "/checkpoints/latest"), "step-00000016");
  EXPECT_EQ(stats().size(), 18u) << "16 steps and 2 evaluations";
  EXPECT_THAT(stats()[8], AllOf(HasSubstr("\"step\":8"), HasSubstr("validation_loss")));
  nlohmann::json results = summary();
  EXPECT_EQ(results["finished"], true);
  EXPECT_EQ(results["exit_code"], 0);
  EXPECT_TRUE(results["error"].is_null());
  EXPECT_TRUE(results["resumed_from_step"].is_null());
  const nlohmann::json json = report();
  for (const auto& [key, value] : json.items()) EXPECT_EQ(results[key], value) << key;
  EXPECT_THAT(text_in(directory_ + "/log.txt"), HasSubstr("epoch 2, step 16: test"));
  EXPECT_THAT(text_in(directory_ + "/placement.txt"), HasSubstr("fc0/W"));
}

TEST_F(TrainingRunTest, GoesOnToTheBitsOfOneThatNeverStopped) {
  for (const int step : {3, 8, 11}) {
    SCOPED_TRACE(step);
    std::filesystem::remove_all(directory_);
    const std::vector<std::string> flags{"--devices=cpu:1", "--save_every_steps=2"};
    const TrainResult cut = start(flags, recipe_that_fails_at(step));
    EXPECT_EQ(cut.code, 1);
    EXPECT_EQ(summary()["finished"], false);
    EXPECT_EQ(summary()["error"]["code"], "FAILED");
    EXPECT_THAT(std::string(summary()["error"]["what"]), HasSubstr("the machine is down"));
    const TrainResult on = start(flags);
    EXPECT_EQ(on.code, 0) << on.error;
    EXPECT_THAT(on.out, HasSubstr("resuming at step"));
    EXPECT_EQ(summary()["resumed_from_step"], step / 2 * 2);
    expect_as_never_stopped(flags);
  }
}

TEST_F(TrainingRunTest, GoesOnWithGroupsOfVariablesThatAreOnlyInItsConfiguration) {
  const std::vector<std::string> flags{"--devices=cpu:1", "--group=fc0:freeze",
                                       "--group=*/b:rate=2"};
  std::vector<std::string> first = flags;
  first.push_back("--save_every_steps=2");
  EXPECT_EQ(start(first, recipe_that_fails_at(5)).code, 1);
  const TrainResult on = start({"--devices=cpu:1", "--config=" + directory_ + "/config.json"});
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_EQ(summary()["resumed_from_step"], 4);
  EXPECT_EQ(report()["group"], "fc0:freeze;*/b:rate=2");
  expect_as_never_stopped(flags);
}

TEST_F(TrainingRunTest, DoesTheEvaluationThatWasDue) {
  // The epoch is saved before it is evaluated.
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe_that_fails_at(8)).code, 1);
  EXPECT_EQ(stats().size(), 9u);
  const TrainResult on = start({"--devices=cpu:1"});
  EXPECT_THAT(on.out, HasSubstr("epoch 1, step 8: test"));
  expect_as_never_stopped({"--devices=cpu:1"});
}

TEST_F(TrainingRunTest, TakesTheGlobalBatchOfTheRunToOtherDevices) {
  EXPECT_EQ(start({"--devices=cpu:4", "--global_batch_size=8", "--shards=4", "--max_steps=5"}).code,
            0);
  const TrainResult two = start({"--devices=cpu:2", "--max_steps=9", "--allreduce=naive"});
  EXPECT_EQ(two.code, 0) << two.error;
  EXPECT_EQ(report()["global_batch_size"], 8);
  EXPECT_EQ(report()["shards"], 4);
  EXPECT_EQ(start({"--devices=cpu:1", "--threads=1"}).code, 0);
  const std::string hash = report()["state_hash"];
  EXPECT_EQ(run_train({"--devices=cpu:2", "--global_batch_size=8", "--shards=4",
                       "--json=" + json_.string()})
                .code,
            0);
  EXPECT_EQ(report()["state_hash"], hash);
  const TrainResult three = start({"--devices=cpu:3", "--epochs=3"});
  EXPECT_EQ(three.code, 2);
  EXPECT_THAT(three.error, HasSubstr("the run has a global batch of 8, which 3 devices do not"));
  const TrainResult other =
      start({"--devices=cpu:2", "--shards=2", "--epochs=3", "--global_batch_size=8"});
  EXPECT_EQ(other.code, 0);
  EXPECT_THAT(other.error, HasSubstr("resume: not the same bits because the number of shards "
                                     "(--shards) was 4 and is now 2"));
}

TEST_F(TrainingRunTest, ThatHasEndedPrintsItsResultsAndWritesNothing) {
  EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
  const std::string before = text_in(directory_ + "/summary.json");
  const auto written = std::filesystem::last_write_time(directory_ + "/log.txt");
  std::filesystem::remove(json_);
  const TrainResult again = start({"--devices=cpu:2"});
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_THAT(again.out, HasSubstr("this run has ended before, after step 16"));
  EXPECT_EQ(text_in(directory_ + "/summary.json"), before);
  EXPECT_EQ(std::filesystem::last_write_time(directory_ + "/log.txt"), written);
  EXPECT_EQ(report()["state_hash"], summary()["state_hash"]);
  EXPECT_EQ(start({"--devices=cpu:1", "--epochs=3"}).code, 0);
  EXPECT_EQ(report()["steps"], 24);
  EXPECT_EQ(summary()["resumed_from_step"], 16);
}

TEST_F(TrainingRunTest, ThatHasEndedEarlyHasEnded) {
  const std::vector<std::string> flags{"--devices=cpu:1", "--epochs=30",
                                       "--early_stop=validation_loss:max:2"};
  EXPECT_EQ(start(flags).code, 0);
  const int steps = summary()["steps"];
  EXPECT_LT(steps, 30 * 8);
  const TrainResult again = start(flags);
  EXPECT_THAT(again.out, HasSubstr("this run has ended before"));
  EXPECT_EQ(summary()["steps"], steps);
}

TEST_F(TrainingRunTest, StartsAnewOnlyWhereItMayReplace) {
  EXPECT_EQ(start({"--max_steps=3", "--devices=cpu:1"}).code, 0);
  const TrainResult refused = start({"--resume=never", "--devices=cpu:1"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("holds a run already"));
  EXPECT_THAT(checkpoints(), Contains("step-00000003"));
  Recipe broken = small_recipe();
  broken.data = [](bool) -> std::unique_ptr<Dataset> { throw IoError("no data"); };
  EXPECT_EQ(start({"--resume=never", "--overwrite", "--devices=cpu:1"}, broken).code, 1);
  EXPECT_THAT(checkpoints(), Contains("step-00000003")) << "nothing took its place";
  EXPECT_EQ(start({"--resume=never", "--overwrite", "--max_steps=2", "--devices=cpu:1"}).code, 0);
  EXPECT_THAT(checkpoints(), ElementsAre("latest", "step-00000002"));
  EXPECT_EQ(stats().size(), 3u);
}

TEST_F(TrainingRunTest, GoesBackOnlyWhereItMayReplaceWhatCameLater) {
  EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
  const std::string back = "--resume=" + directory_ + "/checkpoints/step-00000008";
  const TrainResult refused = start({"--devices=cpu:1", back});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("goes back to step 8, but"));
  EXPECT_EQ(start({"--devices=cpu:1", back, "--overwrite"}).code, 0);
  EXPECT_EQ(summary()["resumed_from_step"], 8);
  expect_as_never_stopped({"--devices=cpu:1"});
  const std::string other = path(".other");
  EXPECT_EQ(run_train({"--devices=cpu:1", "--max_steps=3", "--run_dir=" + other}).code, 0);
  const TrainResult taken = start({"--devices=cpu:1", "--resume=" + other});
  EXPECT_EQ(taken.code, 2);
  EXPECT_THAT(taken.error, HasSubstr("holds another run already"));
  std::filesystem::remove_all(other);
}

TEST_F(TrainingRunTest, ThatEndedIsNotReplacedIfItsCheckpointsAreGone) {
  EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
  const std::vector<std::string> course = stats();
  std::filesystem::remove_all(directory_ + "/checkpoints");
  const TrainResult refused = start({"--devices=cpu:1"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("error: --run_dir=" + directory_ + ": "),
                                   HasSubstr("but none of its checkpoints"),
                                   HasSubstr("with 18 lines of stats.jsonl")));
  EXPECT_EQ(stats(), course);
  EXPECT_EQ(start({"--devices=cpu:1", "--resume=never", "--overwrite"}).code, 0);
  EXPECT_EQ(stats(), course);
}

TEST_F(TrainingRunTest, WarnsOfLinesThatItReplaces) {
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe_that_fails_at(5)).code, 1);
  const TrainResult anew = start({"--devices=cpu:1"});
  EXPECT_EQ(anew.code, 0) << anew.error;
  EXPECT_THAT(anew.error,
              HasSubstr(directory_ + " has no checkpoint to resume from; the run starts "
                                     "anew and replaces 5 lines of stats.jsonl"));
  expect_as_never_stopped({"--devices=cpu:1"});
}

TEST_F(TrainingRunTest, SkipsADamagedCheckpoint) {
  const std::vector<std::string> flags{"--devices=cpu:1", "--save_every_steps=2"};
  EXPECT_EQ(start(flags, recipe_that_fails_at(7)).code, 1);
  const std::string newest = directory_ + "/checkpoints/step-00000006/model.safetensors";
  std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const TrainResult on = start(flags);
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_THAT(on.error,
              AllOf(HasSubstr("resume: skipped a damaged checkpoint"), HasSubstr("step-00000006")));
  EXPECT_EQ(summary()["resumed_from_step"], 4);
  expect_as_never_stopped(flags);
}

TEST_F(TrainingRunTest, KeepsTheNewestAndTheBest) {
  EXPECT_EQ(
      start({"--devices=cpu:1", "--epochs=6", "--keep=2", "--best_metric=validation_loss:max"})
          .code,
      0);
  std::vector<std::pair<double, int>> losses;
  for (const std::string& line : stats())
    if (const auto json = nlohmann::json::parse(line); json.contains("validation_loss"))
      losses.emplace_back(json["validation_loss"], json["step"]);
  const auto [loss, step] = *std::ranges::max_element(losses);
  const std::string best = std::filesystem::read_symlink(directory_ + "/checkpoints/best");
  EXPECT_EQ(step_of_checkpoint(best), step);
  EXPECT_THAT(checkpoints(),
              IsSupersetOf({best, std::string("step-00000040"), std::string("step-00000048")}));
  EXPECT_THAT(checkpoints(), Not(Contains(step == 8 ? "step-00000016" : "step-00000008")));
  const TrainResult unknown = start({"--best_metric=validation_los:max", "--epochs=7"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.error, HasSubstr("did you mean 'validation_loss'? (there are "));
}

// Without data to evaluate, each save may be the best by a metric of its step.
TEST_F(TrainingRunTest, KeepsTheBestByAMetricOfSteps) {
  Recipe untested = small_recipe();
  untested.data = [](bool train) { return train ? small_data(true) : nullptr; };
  for (const char* const best_by : {"loss:min", "loss:max"}) {
    std::filesystem::remove_all(directory_);
    const TrainResult done = start({"--devices=cpu:1", "--epochs=1", "--save_every_steps=2",
                                    "--keep=1", cat("--best_metric=", best_by)},
                                   untested);
    EXPECT_EQ(done.code, 0) << done.error;
    std::vector<std::pair<double, int>> losses;
    for (const std::string& line : stats())
      if (const auto json = nlohmann::json::parse(line); json["step"].get<int>() % 2 == 0)
        losses.emplace_back(json["loss"], json["step"]);
    const auto [least, most] = std::ranges::minmax_element(losses);
    const std::string best = std::filesystem::read_symlink(directory_ + "/checkpoints/best");
    EXPECT_EQ(step_of_checkpoint(best),
              (best_by == std::string("loss:min") ? least : most)->second);
  }
}

// Whatever was the best before is removed.
TEST_F(TrainingRunTest, KeepsNoFormerBest) {
  EXPECT_EQ(start({"--epochs=6", "--keep=1", "--best_metric=validation_loss:min"}).code, 0);
  const auto best = std::filesystem::read_symlink(directory_ + "/checkpoints/best").string();
  const auto latest = std::filesystem::read_symlink(directory_ + "/checkpoints/latest").string();
  std::set<std::string> expected{"best", "latest", best, latest};
  EXPECT_THAT(checkpoints(), testing::UnorderedElementsAreArray(expected));
}

// The data are in memory, but the run cannot know that nothing reads the file again.
TEST_F(TrainingRunTest, TellsThatAFileOfTheDataChangesWhileItTrains) {
  const std::string file = path(".data");
  const auto write = [&](const char* text, int minutes) {
    std::ofstream(file) << text;
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() + std::chrono::minutes(minutes));
  };
  const auto recipe_of = [&](std::int64_t step, const char* text) {
    Recipe recipe = recipe_that(step, [=](Trainer&) { write(text, 1); });
    recipe.data = [=](bool train) -> std::unique_ptr<Dataset> {
      if (!train) return nullptr;
      return std::make_unique<LazyDataset>(
          small_data(true)->signature(), [] { return small_data(true); },
          std::vector<std::string>{file});
    };
    return recipe;
  };
  const std::vector<std::string> flags{"--devices=cpu:1", "--save_every_steps=2"};
  write("0123456789", 0);
  const TrainResult same = start(flags, recipe_of(3, "0123456789"));
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.error, Not(HasSubstr("has changed"))) << "the content is the same";
  std::filesystem::remove_all(directory_);
  write("0123456789", 0);
  std::vector<std::string> half = flags;
  half.emplace_back("--max_steps=6");
  const TrainResult changed = start(half, recipe_of(3, "0123456780"));
  EXPECT_EQ(changed.code, 0);
  EXPECT_THAT(changed.error, HasSubstr(file + " has changed since this run began to read it"));
  const TrainResult resumed = start(flags, recipe_of(-1, ""));
  EXPECT_EQ(resumed.code, 2);
  EXPECT_THAT(resumed.error, HasSubstr("the training data was "));
  write("0123456789", 2);
  EXPECT_EQ(start(flags, recipe_of(-1, "")).code, 0);
  std::filesystem::remove(file);
}

// Sets a metric of its own: 1, 2, 3, ... in each evaluation, or after each epoch.
struct Scores final : Callback {
  explicit Scores(bool of_epochs) : epochs(of_epochs) {}
  std::vector<std::string> metrics() const override { return {"validation_score"}; }
  void after_evaluation(Trainer& trainer, const StepInfo&) override {
    if (!epochs) trainer.record().set_metric("validation_score", ++count);
  }
  void after_epoch(Trainer& trainer, const StepInfo&) override {
    if (epochs) trainer.record().set_metric("validation_score", ++count);
  }
  bool epochs;
  double count = 0;
};

TEST_F(TrainingRunTest, RecordsTheMetricsOfModelAndCallbacks) {
  for (const bool epochs : {false, true}) {
    std::filesystem::remove_all(directory_);
    Recipe recipe = small_recipe();
    recipe.callbacks = {std::make_shared<Scores>(epochs)};
    const TrainResult done =
        start({"--epochs=3", "--best_metric=validation_score:min",
               "--early_stop=validation_score:min:2", "--json=" + json_.string()},
              recipe);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.out,
                AllOf(HasSubstr("  validation_score    3\n"),
                      HasSubstr("training      validation\n"), HasSubstr("  mean_x      "),
                      HasSubstr("early stop: validation_score was not below 1")));
    for (const nlohmann::json& results : {report(), test::summary_of(directory_)}) {
      EXPECT_EQ(results["metrics"]["validation_score"], 3);
      EXPECT_TRUE(results["metrics"]["validation_mean_x"].is_number());
      EXPECT_EQ(results["metrics"]["loss"], results["loss"]);
    }
    const std::vector<std::string> course = test::course_of(directory_);
    const auto scored = [](const std::string& line) {
      return line.find("validation_score\":2") != std::string::npos &&
             line.find("validation_loss") != std::string::npos;
    };
    EXPECT_EQ(std::ranges::count_if(course, scored), 1);
    const std::string first = std::filesystem::read_symlink(directory_ + "/checkpoints/best");
    EXPECT_EQ(inspect_checkpoint(directory_ + "/checkpoints/" + first).extra.at("epoch").integer(),
              1)
        << "the lowest score";
  }
}

// A finished run and its files stay as they are.
TEST_F(TrainingRunTest, KnowsItsMetricsBeforeItWritesAnything) {
  EXPECT_EQ(start().code, 0);
  const std::string config = text_in(directory_ + "/config.json");
  const std::string results = text_in(directory_ + "/summary.json");
  for (const auto& [flag, why] :
       {std::pair("--best_metric=validation_los:min",
                  "--best_metric=validation_los: there is no such metric"),
        {"--best_metric=mean_x:max",
         "there is no such metric of evaluations; write validation_mean_x (there are "},
        {"--early_stop=accuracy:max:2", "--early_stop=accuracy:max:2: there is no metric"}}) {
    const TrainResult refused = start({"--epochs=3", flag});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.error, HasSubstr(why));
    EXPECT_EQ(text_in(directory_ + "/config.json"), config) << flag;
    EXPECT_EQ(text_in(directory_ + "/summary.json"), results) << flag;
  }
}

// Files that were there before stay.
TEST_F(TrainingRunTest, LeavesNothingOfAStartThatIsRefused) {
  for (const bool there : {false, true})
    for (const char* const flag :
         {"--best_metric=nosuch:min", "--recompute=nosuch", "--early_stop=nosuch:min:1"}) {
      if (there) std::filesystem::create_directories(directory_);
      EXPECT_EQ(start({flag}).code, 2) << flag;
      EXPECT_EQ(std::filesystem::exists(directory_), there) << flag;
      EXPECT_TRUE(!there || std::filesystem::is_empty(directory_)) << flag;
    }
  EXPECT_EQ(run_train({"--recompute=nosuch", "--run_dir=" + directory_ + "/a/b"}).code, 2);
  EXPECT_TRUE(std::filesystem::is_empty(directory_)) << "of what was made for it";
  EXPECT_EQ(start({"--max_steps=1"}).code, 0);
}

TEST_F(TrainingRunTest, RefusesWhatIsNoRunDirectory) {
  std::filesystem::create_directories(directory_);
  std::ofstream(directory_ + "/thesis.tex") << "text";
  const TrainResult refused = start();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("error: --run_dir=" + directory_ + ": "));
  EXPECT_THAT(refused.error, HasSubstr("holds files, but no run"));
  EXPECT_THAT(local_file_system().list(directory_), ElementsAre("thesis.tex"));
  const std::string in_file = directory_ + "/thesis.tex/run";
  const TrainResult none = run_train({"--run_dir=" + in_file}, unreadable_recipe());
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.error, HasSubstr("error: --run_dir=" + in_file + ": "));
}

TEST_F(TrainingRunTest, IsOneProgramsAtATime) {
  const RunDirectory taken(directory_);
  const TrainResult refused = start();
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, HasSubstr("error: --run_dir=" + directory_ + ": "));
  EXPECT_THAT(refused.error, HasSubstr("is the run directory of a program that is running"));
}

TEST(RunFlags, ReadTimes) {
  EXPECT_EQ(parse_duration("f", "90"), 90);
  EXPECT_EQ(parse_duration("f", "1:30"), 90);
  EXPECT_EQ(parse_duration("f", "01:02:03:04"), ((24 + 2) * 60 + 3) * 60 + 4);
  for (const char* text : {"", "0", "1:2:3:4:5", "x", "1:-2", "1.5"})
    EXPECT_THROW(parse_duration("f", text), FlagError) << text;
}

TEST(RunFlags, AreAboutARunDirectory) {
  for (const char* flag : {"--keep=2", "--save_every_steps=3", "--best_metric=loss:min"}) {
    const TrainResult done = run_train({flag});
    EXPECT_EQ(done.code, 2);
    EXPECT_THAT(done.error, AllOf(HasSubstr(flag), HasSubstr("--run_dir")));
  }
  EXPECT_THAT(run_train({"--best_metric=loss", "--run_dir=d"}).error, HasSubstr("NAME:min"));
}

}  // namespace training_run_test
}  // namespace belfry
