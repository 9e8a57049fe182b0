// What a run saves and restores when steps are not finite.
#include <cmath>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/support/process_threads.h"
#include "belfry/tests/trainers/core/spiced_data.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/run_saver.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace nonfinite_run_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using namespace spiced;

class NonfiniteRun : public TrainTest {
 protected:
  NonfiniteRun() { std::filesystem::remove_all(run_); }
  ~NonfiniteRun() override { std::filesystem::remove_all(run_); }

  // On batches of four.
  static Recipe recipe(float spice) {
    Recipe made = small_recipe();
    made.model = spiced_model;
    made.data = [spice](bool train) { return train ? spiced_data(spice) : nullptr; };
    made.optimizer = adam(0.01);
    made.batch_size = 2;
    return made;
  }

  const std::string run_ = path(".run");
  const std::string dir_ = "--run_dir=" + run_;
  const std::string json_flag_ = "--json=" + json_.string();
};

TEST_F(NonfiniteRun, SavesTheStateBeforeTheStepThatEndsIt) {
  const auto steps = std::make_shared<Steps>();
  Recipe bad = recipe(kNaN);
  bad.callbacks = {steps};
  const TrainResult stopped = run_train({dir_}, bad);
  EXPECT_EQ(stopped.code, 1);
  const std::int64_t good = std::ssize(steps->before) - 1;
  ASSERT_GT(good, 0);
  EXPECT_THAT(stopped.error, HasSubstr(cat("step ", good, " is saved in ")));
  EXPECT_EQ(checkpoints_in(local_file_system(), run_), (std::vector<std::int64_t>{good}));
  // The same batch comes again, and is skipped.
  const TrainResult resumed = run_train({dir_, "--on_nonfinite=skip", json_flag_}, bad);
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_EQ(report()["skipped_steps"], 2);
  EXPECT_EQ(report()["steps"], 16);
  EXPECT_THAT(resumed.error,
              AllOf(HasSubstr(cat("W the loss of step ", good + 1, " is nan (field")),
                    HasSubstr(": this step changes no variable (--on_nonfinite)")));
  // A run that never stopped has the same bits.
  const std::string hash = report()["params_hash"];
  run_train({"--on_nonfinite=skip", json_flag_}, bad);
  EXPECT_EQ(report()["params_hash"], hash);
}

// The first loss is updated before the second one fails, and not after it has failed itself.
TEST_F(NonfiniteRun, OfSeveralLossesSavesTheStateBeforeTheStepIfThatChangedNothing) {
  for (const char* const bad : {"one", "two"}) {
    SCOPED_TRACE(bad);
    std::filesystem::remove_all(run_);
    Recipe losses = recipe(kNaN);
    losses.optimizer = {};
    losses.losses = {{.loss = "one", .variables = {"a"}, .optimizer = adam(0.01)},
                     {.loss = "two", .variables = {"b"}, .optimizer = adam(0.01)}};
    losses.model = [bad](Tower& tower, Output x, Output, Output spice) {
      const auto loss = [&](const char* name, const char* of) {
        const Output w = variable(tower.graph(), of, {}, {.initializer = init::ones()}).read();
        const Output times = name == std::string(bad) ? reduce_mean(spice) : reduce_mean(x);
        tower.loss(name, square(w) + w * times);
      };
      loss("one", "a");
      loss("two", "b");
      return Output();
    };
    const TrainResult stopped = run_train({dir_, json_flag_, "--save_every_epochs=0"}, losses);
    EXPECT_EQ(stopped.code, 1);
    const std::int64_t good = report()["steps"].get<std::int64_t>() - 1;
    ASSERT_GT(good, 0);
    const std::vector<std::int64_t> saved = checkpoints_in(local_file_system(), run_);
    if (bad == std::string("one")) {
      EXPECT_EQ(saved, std::vector<std::int64_t>{good});
      EXPECT_THAT(stopped.error, HasSubstr("; this step changed no variable"));
    } else {
      EXPECT_TRUE(saved.empty());
      EXPECT_THAT(
          stopped.error,
          HasSubstr(cat("the state before step ", good + 1,
                        " is not saved, as that step changed only the variables of 'one'")));
    }
  }
}

// The weights are finite, and useless.
TEST_F(NonfiniteRun, DoesNotSaveAModelThatHadGoneBad) {
  Recipe wild = recipe(1);
  wild.optimizer = sgd(1e30);
  const TrainResult done = run_train({dir_}, wild);
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, HasSubstr("a smaller learning rate may help"));
  EXPECT_TRUE(checkpoints_in(local_file_system(), run_).empty());
}

TEST_F(NonfiniteRun, SavesNothingAfterAnUpdateThatOverflowed) {
  Recipe wild = recipe(1);
  wild.model = [](Tower& tower, Output x, Output, Output) {
    const Output w = variable(tower.graph(), "w", {}, {.initializer = init::ones()}).read();
    return relu(w * 1e10) + reduce_mean(x) * 0.0;
  };
  wild.optimizer = sgd([](const StepInfo& info) { return info.step < 3 ? 1e-12 : 1e30; });
  const TrainResult done = run_train({dir_, "--save_every_steps=1"}, wild);
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, HasSubstr("the update of step 4 by SGD overflowed"));
  EXPECT_EQ(checkpoints_in(local_file_system(), run_).back(), 3);
  // The batch that follows is taken with those variables, until nothing is left to restore.
  const TrainResult restored = run_train({dir_, "--on_nonfinite=restore"}, wild);
  EXPECT_EQ(restored.code, 1);
  EXPECT_THAT(restored.error,
              HasSubstr("the update of step 4 overflowed: the variables are those of "));
}

TEST_F(NonfiniteRun, TakesTheVariablesOfTheNewestCheckpoint) {
  for (const char* precision : {"f32", "bf16"}) {
    std::filesystem::remove_all(run_);
    const auto steps = std::make_shared<Steps>();
    Recipe bad = recipe(kNaN);
    bad.callbacks = {steps};
    const TrainResult done = run_train({dir_, "--on_nonfinite=restore", "--save_every_steps=2",
                                        json_flag_, cat("--precision=", precision)},
                                       bad);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_EQ(report()["steps"], 16);
    EXPECT_THAT(done.error, AllOf(HasSubstr(": the variables are those of "),
                                  HasSubstr(" again (--on_nonfinite)")));
    // The state after the bad step is that before the last step of an even number.
    std::size_t restored = 0;
    for (std::size_t step = 2; step + 1 < steps->before.size(); ++step) {
      const State& newest = steps->before[step / 2 * 2];
      restored += steps->before[step + 1] == newest;
    }
    EXPECT_EQ(restored, 2u);
    for (std::size_t step = 0; step < steps->runs.size(); ++step)
      EXPECT_EQ(steps->runs[step], step) << "no random number comes again";
    EXPECT_EQ(report()["skipped_steps"], 2);
  }
}

TEST_F(NonfiniteRun, RestoresOnlySoOften) {
  const TrainResult done = run_train({dir_, "--on_nonfinite=restore", "--on_nonfinite_restores=1",
                                      "--save_every_steps=1", json_flag_},
                                     recipe(kNaN));
  EXPECT_EQ(done.code, 1);
  EXPECT_THAT(done.error, HasSubstr("training diverged: the loss of step "));
  EXPECT_GT(report()["steps"], 8) << "the second one, in the second epoch";
  EXPECT_THAT(done.error, HasSubstr("variables were restored as often as --on_nonfinite_restores "
                                    "allows"));
  // Without a save there is nothing to restore.
  std::filesystem::remove_all(run_);
  const TrainResult none =
      run_train({dir_, "--on_nonfinite=restore", "--save_every_epochs=0"}, recipe(kNaN));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.error, AllOf(HasSubstr("there is no checkpoint yet to restore"),
                                HasSubstr("training diverged: the loss of step ")));
  EXPECT_TRUE(std::filesystem::exists(run_ + "/checkpoints/latest")) << "nothing good is lost";
}

// The sixth update leaves weights that are finite and of no use.
TEST_F(NonfiniteRun, KeepsCheckpointsFromBeforeWeightsThatAreOfNoUse) {
  Recipe ruined = recipe(1);
  ruined.optimizer = sgd([](const StepInfo& info) { return info.step == 5 ? 1e36 : 0.01; });
  ruined.epochs = 3;
  const auto run = [&](const char* policy) {
    std::filesystem::remove_all(run_);
    return run_train({dir_, cat("--on_nonfinite=", policy), "--save_every_steps=1", json_flag_},
                     ruined);
  };
  const TrainResult stopped = run("stop");
  EXPECT_EQ(stopped.code, 1);
  EXPECT_EQ(checkpoints_in(local_file_system(), run_), (std::vector<std::int64_t>{4, 5, 6}));
  EXPECT_THAT(stopped.error, AllOf(HasSubstr("has become as large as "),
                                   HasSubstr(cat("the checkpoint of step 6 in ", run_,
                                                 " may be of no use; an "
                                                 "older one can be resumed from (--resume=PATH)")),
                                   HasSubstr("a smaller learning rate may help")));
  EXPECT_EQ(run("skip").code, 0);
  EXPECT_EQ(report()["skipped_steps"], 18);
  EXPECT_EQ(checkpoints_in(local_file_system(), run_), (std::vector<std::int64_t>{4, 5, 6, 24}));
  const TrainResult restored = run("restore");
  EXPECT_EQ(restored.code, 0) << restored.error;
  EXPECT_EQ(report()["skipped_steps"], 2) << "step 6 is restored, then step 5";
  EXPECT_TRUE(std::isfinite(report()["loss"].get<double>()));
}

// The first process alone saves, and all read. One of them has the bad sample.
TEST_F(NonfiniteRun, TakesThemInAllProcesses) {
  std::mutex mutex;
  std::vector<std::string> hashes;
  RunDirectory directory(run_);
  test::run_processes(2, [&](const std::shared_ptr<Processes>& processes) {
    const auto data = spiced_data(kNaN);
    const auto steps = std::make_shared<Steps>();
    TrainerOptions options = options_of(OnNonfinite::kRestore);
    options.batch_size = 2;
    options.session.processes = processes;
    options.callbacks = {steps};
    if (processes->rank() == 0)
      options.callbacks.push_back(
          std::make_shared<RunSaver>(directory, SaveSchedule{.every_steps = 1, .keep = 9}));
    const auto trainer = make(std::move(options), *data);
    trainer->train();
    EXPECT_EQ(trainer->record().watch().skipped_steps(), 1);
    EXPECT_EQ(steps->unchanged.size(), 1u) << "each step was saved, so nothing was lost";
    const std::string hash = state_hash(trainer->session(), trainer->graph());
    const std::lock_guard lock(mutex);
    hashes.push_back(hash);
  });
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(NonfiniteRun, WarnsIfItSkipsAllSteps) {
  Recipe bad = recipe(1);
  bad.epochs = 4;
  bad.model = [](Tower& tower, Output x, Output y, Output spice) {
    return spiced_model(tower, x, y, spice) * kNaN;
  };
  const TrainResult done = run_train({"--on_nonfinite=skip", json_flag_}, bad);
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(report()["skipped_steps"], 32);
  EXPECT_THAT(done.error, HasSubstr("the last 20 updates were skipped, as losses or gradients were "
                                    "not finite; if that continues, the model learns nothing"));
}

}  // namespace nonfinite_run_test
}  // namespace belfry
