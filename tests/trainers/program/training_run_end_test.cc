// How runs end: by signals, by their time, and by errors.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/run_support.h"

namespace belfry {
namespace training_run_end_test {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainingRunTest, EndsWhenASignalAsksForItAndGoesOn) {
  for (const auto& [signal, code] :
       {std::pair(SIGINT, 130), {SIGTERM, 143}, {SIGHUP, 143}, {SIGUSR1, 143}, {SIGUSR2, 0}}) {
    SCOPED_TRACE(signal);
    std::filesystem::remove_all(directory_);
    const Recipe recipe = recipe_that(4, [signal = signal](Trainer&) { ::raise(signal); });
    const TrainResult done = start({"--devices=cpu:1"}, recipe);
    EXPECT_EQ(done.code, code) << done.error;
    EXPECT_THAT(checkpoints(), Contains("step-00000005"));
    if (code == 0) continue;
    EXPECT_EQ(summary()["finished"], false);
    EXPECT_EQ(summary()["exit_code"], code);
    EXPECT_EQ(report()["steps"], 5);
    EXPECT_THAT(done.out, HasSubstr("step 5 of 16 is complete; step 5 is saved in"));
    EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
    expect_as_never_stopped({"--devices=cpu:1"});
  }
}

TEST_F(TrainingRunTest, KeepsWeightsThatAreFinite) {
  // The losses are finite, but the weights are not.
  const Recipe recipe = recipe_that(12, [](Trainer& trainer) {
    const Variable w = trainer.built().nodes().towers[0].trainables[1];
    Tensor value = trainer.session().read(w);
    value.mutable_data<double>()[0] = std::nan("");
    trainer.session().write(w, value);
    trainer.stop();
  });
  EXPECT_EQ(start({"--devices=cpu:1", "--save_every_steps=1", "--keep=1"}, recipe).code, 1);
  EXPECT_THAT(checkpoints(), ElementsAre("latest", "step-00000012"));
}

// Waits until the first save has ended, which continues in the background.
void wait_for_save(const std::string& run) {
  while (!std::filesystem::exists(run + "/checkpoints/latest")) ::usleep(1000);
}

// The folder is lost between the last two saves, of steps 8 and 12 or 16.
TEST_F(TrainingRunTest, TellsItsResultsIfItsLastSaveFails) {
  for (const char* const on_error : {"stop", "retry"})
    for (const char* const max_steps : {"12", "16"}) {
      SCOPED_TRACE(testing::Message() << on_error << ", " << max_steps);
      std::filesystem::remove_all(directory_);
      std::filesystem::remove(json_);
      const Recipe recipe = recipe_that(10, [&](Trainer&) {
        wait_for_save(directory_);
        std::filesystem::remove_all(directory_ + "/checkpoints");
        std::ofstream(directory_ + "/checkpoints") << "no folder";
      });
      const TrainResult done = start(
          {"--devices=cpu:1", cat("--max_steps=", max_steps), cat("--on_save_error=", on_error)},
          recipe);
      EXPECT_EQ(done.code, 1);
      EXPECT_THAT(done.error, HasSubstr(cat("step ", max_steps, " could not be saved: ")));
      EXPECT_THAT(done.out, AllOf(HasSubstr(cat("epoch 2, step ", max_steps, ": test")),
                                  HasSubstr("params_hash")));
      EXPECT_TRUE(report()["validation_loss"].is_number());
      EXPECT_EQ(summary()["finished"], false);
      EXPECT_EQ(summary()["exit_code"], 1);
      EXPECT_EQ(summary()["error"]["code"], "IO");
      const nlohmann::json json = report(), kept = summary();
      for (const auto& [key, value] : json.items()) EXPECT_EQ(kept[key], value) << key;
    }
}

TEST_F(TrainingRunTest, NamesNoCheckpointThatIsGone) {
  const TrainResult done = start({"--devices=cpu:1"}, recipe_that(10, [&](Trainer&) {
                                   wait_for_save(directory_);
                                   std::filesystem::remove_all(directory_);
                                 }));
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, HasSubstr("step 16 could not be saved: "));
  EXPECT_THAT(done.out + done.error,
              AllOf(Not(HasSubstr("is saved in")), Not(HasSubstr("is kept"))));
}

TEST_F(TrainingRunTest, NamesTheCheckpointOfTheRunBefore) {
  EXPECT_EQ(start({"--devices=cpu:1", "--epochs=1"}).code, 0);
  const Recipe recipe = recipe_that(10, [&](Trainer&) {
    std::filesystem::create_directories(directory_ + "/checkpoints/step-00000016/thesis");
  });
  const TrainResult done = start({"--devices=cpu:1"}, recipe);
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, AllOf(HasSubstr("step 16 could not be saved: "),
                                HasSubstr("; step 8 is kept, and training continues"),
                                HasSubstr("; step 8 is saved in " + directory_)));
  EXPECT_EQ(summary()["error"]["kept"], "step 8 is saved in " + directory_);
}

TEST_F(TrainingRunTest, ThatFailsSaysWhatItWas) {
  EXPECT_EQ(start({"--devices=cpu:2", "--seed=7"}, recipe_that_fails_at(5)).code, 1);
  const nlohmann::json failed = summary();
  EXPECT_EQ(failed["program"], "program");
  EXPECT_EQ(failed["devices"].size(), 2u);
  EXPECT_EQ(failed["trainer"], "replicated");
  EXPECT_EQ(failed["seed"], 7);
  EXPECT_EQ(failed["steps"], 5);
  EXPECT_EQ(failed["batch_size"], 8);
  EXPECT_TRUE(failed["loss"].is_number());
  EXPECT_EQ(failed["params_hash"].get<std::string>().size(), 16u);
}

TEST_F(TrainingRunTest, EndsOnceWhenOneSignalComesTwice) {
  const Recipe recipe = recipe_that(4, [](Trainer&) {
    ::raise(SIGTERM);
    ::raise(SIGTERM);
  });
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe).code, 143);
}

TEST_F(TrainingRunTest, EndsWhenItsTimeIsUp) {
  const Recipe slow = recipe_that(2, [](Trainer&) { ::usleep(1'100'000); });
  EXPECT_EQ(start({"--devices=cpu:1", "--max_time=1"}, slow).code, 143);
  EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
  expect_as_never_stopped({"--devices=cpu:1"});
}

TEST_F(TrainingRunTest, LeavesTheEvaluationToTheRunThatGoesOnAfterASignal) {
  // The signal comes in the last step of the first epoch.
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe_that(7, [](Trainer&) { ::raise(SIGTERM); })).code,
            143);
  EXPECT_EQ(stats().size(), 8u) << "no evaluation";
  EXPECT_TRUE(summary()["validation_loss"].is_null());
  const TrainResult on = start({"--devices=cpu:1"});
  EXPECT_EQ(on.code, 0) << on.error;
  EXPECT_THAT(on.out, HasSubstr("epoch 1, step 8: test"));
  expect_as_never_stopped({"--devices=cpu:1"});
}

// Test data that send a signal at their second sample, when they are asked for it as often.
struct SignallingData final : Dataset {
  explicit SignallingData(int which) : left(which) {}
  std::vector<Field> signature() const override { return data->signature(); }
  std::int64_t size() const override { return data->size(); }
  std::string describe() const override { return data->describe(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    data->gather(indices, out);
    if (std::ranges::find(indices, 1) != indices.end() && --left == 0) ::kill(::getpid(), SIGINT);
    taken += std::ssize(indices);
  }
  std::unique_ptr<Dataset> data = smooth_data(40);
  mutable int left;
  mutable std::int64_t taken = 0;
};

// Gives a program data that the test keeps.
struct BorrowedData final : Dataset {
  explicit BorrowedData(const Dataset& d) : data(d) {}
  std::vector<Field> signature() const override { return data.signature(); }
  std::int64_t size() const override { return data.size(); }
  std::string describe() const override { return data.describe(); }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    data.gather(indices, out);
  }
  const Dataset& data;
};

Recipe recipe_tested_by(const SignallingData& data) {
  Recipe recipe = small_recipe();
  recipe.data = [&data](bool train) -> std::unique_ptr<Dataset> {
    if (train) return small_data(true);
    return std::make_unique<BorrowedData>(data);
  };
  return recipe;
}

TEST_F(TrainingRunTest, LeavesAnEvaluationWhenASignalComes) {
  struct Case {
    std::vector<std::string> flags;
    int evaluation, steps;
  };
  for (const auto& [flags, evaluation, steps] :
       {Case{{"--devices=cpu:1"}, 1, 8},
        {{"--devices=cpu:1"}, 2, 16},
        {{"--devices=cpu:1", "--save_every_epochs=0"}, 1, 8},
        {{"--devices=cpu:1", "--max_steps=11", "--save_every_steps=11"}, 2, 11}}) {
    SCOPED_TRACE(testing::Message() << testing::PrintToString(flags) << evaluation);
    std::filesystem::remove_all(directory_);
    const SignallingData cut(evaluation), whole(0);
    const TrainResult done = start(flags, recipe_tested_by(cut));
    EXPECT_EQ(done.code, 130) << done.error;
    EXPECT_EQ(report()["steps"], steps) << "no step behind the signal";
    EXPECT_EQ(cut.taken, 40 * (evaluation - 1) + 8) << "no batch behind the signal";
    EXPECT_EQ(stats().size(), steps + evaluation - 1u);
    EXPECT_THAT(done.out, HasSubstr(cat("step ", steps, " is saved in ")));
    EXPECT_EQ(summary()["finished"], false);
    const TrainResult on = start(flags, recipe_tested_by(whole));
    EXPECT_EQ(on.code, 0) << on.error;
    EXPECT_THAT(on.out, HasSubstr(cat(", step ", steps, ": test")));
    const std::string hash = summary()["state_hash"];
    const double loss = summary()["validation_loss"];
    const std::vector<std::string> course = stats();
    std::filesystem::remove_all(directory_);
    EXPECT_EQ(start(flags, recipe_tested_by(whole)).code, 0);
    EXPECT_EQ(summary()["state_hash"], hash);
    EXPECT_EQ(summary()["validation_loss"], loss);
    EXPECT_EQ(stats(), course);
  }
}

// Behind the last look of an evaluation.
TEST_F(TrainingRunTest, TrainsNoStepBehindASignal) {
  struct AfterEpoch final : Callback {
    void after_epoch(Trainer&, const StepInfo&) override { ::raise(SIGTERM); }
  };
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<AfterEpoch>()};
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe).code, 143);
  EXPECT_EQ(report()["steps"], 8);
  EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
  expect_as_never_stopped({"--devices=cpu:1"});
}

TEST_F(TrainingRunTest, TellsTheLossOfItsLastStepIfItMakesNone) {
  // The run dies after its last save, before the evaluation.
  EXPECT_EQ(start({"--devices=cpu:1"}, recipe_that_fails_at(16)).code, 0) << "no step 16";
  const double loss = summary()["loss"];
  std::filesystem::remove(directory_ + "/summary.json");
  EXPECT_EQ(start({"--devices=cpu:1"}).code, 0);
  EXPECT_EQ(summary()["resumed_from_step"], 16);
  EXPECT_EQ(summary()["loss"], loss);
  EXPECT_EQ(report()["loss"], loss);
}

}  // namespace training_run_end_test
}  // namespace belfry
