// What a resumed run has of the run before: what callbacks did after the epoch whose save it
// resumes from, and the options of its optimizer.
#include <cmath>
#include <filesystem>

#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/core/trainer.h"

namespace belfry {
namespace resumed_run_test {

// Sets a metric of its own after each epoch. It remembers nothing.
struct OwnMetric final : Callback {
  std::vector<std::string> metrics() const override { return {"own"}; }
  void after_epoch(Trainer& trainer, const StepInfo& info) override {
    trainer.record().set_metric("own", static_cast<double>(info.step));
  }
};

Recipe recipe_of(std::int64_t fails_at, bool tests) {
  Recipe recipe = recipe_that_fails_at(fails_at);
  recipe.epochs = 4;
  recipe.callbacks.push_back(std::make_shared<OwnMetric>());
  if (!tests) recipe.data = [](bool train) { return train ? small_data(true) : nullptr; };
  return recipe;
}

struct Ended {
  std::string out, best;
  nlohmann::json metrics;
  std::vector<std::string> course;
};

void expect_equal(const Ended& a, const Ended& b) {
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.best, b.best);
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.course, b.course);
}

class ResumedRunTest : public TrainingRunTest {
 protected:
  // The run to its end. First it fails after its first epoch, if it `fails`.
  Ended end_of(bool fails, std::vector<std::string> flags, bool tests) {
    flags.push_back("--devices=cpu:1");
    std::filesystem::remove_all(directory_);
    if (fails) {
      EXPECT_NE(start(flags, recipe_of(12, tests)).code, 0);
    }
    const TrainResult ended = start(flags, recipe_of(-1, tests));
    EXPECT_EQ(ended.code, 0) << ended.error;
    const std::size_t stop = ended.out.find("early stop: ");
    return {.out = stop == ended.out.npos
                       ? ""
                       : ended.out.substr(stop, ended.out.find('\n', stop) - stop),
            .best = std::filesystem::read_symlink(directory_ + "/checkpoints/best"),
            .metrics = summary()["metrics"],
            .course = stats()};
  }
};

TEST_F(ResumedRunTest, HasTheMetricsThatCallbacksSetAfterIt) {
  const std::vector<std::string> flags{"--best_metric=own:min", "--early_stop=own:min:2"};
  const Ended resumed = end_of(true, flags, true), whole = end_of(false, flags, true);
  expect_equal(resumed, whole);
  EXPECT_THAT(whole.out, testing::HasSubstr("training ends after step 24"));
  EXPECT_THAT(whole.best, testing::EndsWith("8"));
}

TEST_F(ResumedRunTest, LooksAtTheMetricsOfTheModelAfterIt) {
  int first = 0;  // how often the first epoch was the best
  for (const std::string which : {"loss:min", "loss:max", "mean_x:min", "mean_x:max"}) {
    const std::vector<std::string> flags{"--best_metric=" + which, "--early_stop=" + which + ":2"};
    const Ended resumed = end_of(true, flags, false), whole = end_of(false, flags, false);
    expect_equal(resumed, whole);
    first += whole.best == "step-00000008";
  }
  EXPECT_GT(first, 0) << "nothing is tested";
}

TEST_F(ResumedRunTest, WarnsOnceThatItsBestMetricIsNotFinite) {
  struct Broken final : Callback {
    std::vector<std::string> metrics() const override { return {"own"}; }
    void after_epoch(Trainer& trainer, const StepInfo&) override {
      trainer.record().set_metric("own", std::nan(""));
    }
  };
  Recipe recipe = small_recipe();
  recipe.callbacks = {std::make_shared<Broken>()};
  const TrainResult done = start({"--best_metric=own:min", "--devices=cpu:1"}, recipe);
  EXPECT_EQ(done.code, 0) << done.error;
  const std::string warning = "--best_metric=own:min: own is nan after step 8; no checkpoint";
  EXPECT_THAT(done.error, testing::HasSubstr(warning));
  EXPECT_THAT(done.error, testing::Not(testing::HasSubstr("after step 16")));
  EXPECT_THAT(stats(), testing::Contains(testing::HasSubstr("\"own\":null")));
  const auto info = inspect_checkpoint(directory_ + "/checkpoints/latest");
  EXPECT_TRUE(info.extra.at("epoch_is_open").str() == "true");
}

// Then the save has what callbacks did, and they are not called again.
TEST_F(ResumedRunTest, IsNotOpenIfTheSaveCameAfterIt) {
  const std::vector<std::string> flags{"--save_every_epochs=0", "--max_steps=8", "--devices=cpu:1"};
  EXPECT_EQ(start(flags, recipe_of(-1, true)).code, 0);
  const auto info = inspect_checkpoint(directory_ + "/checkpoints/latest");
  EXPECT_EQ(info.extra.find("epoch_is_open"), nullptr);
  EXPECT_EQ(info.extra.at("metrics").at("own").number(), 8);
}

TEST_F(ResumedRunTest, SaysWhichDevicesCanShareItsBatch) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const TrainResult refused = start({"--devices=cpu:3"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error,
              testing::HasSubstr("the run has a global batch of 8, which 3 devices do not divide; "
                                 "use a number that does (--devices)"));
}

TEST_F(ResumedRunTest, NamesTheOptionOfTheOptimizerThatDiffers) {
  Recipe recipe = small_recipe();
  recipe.optimizer = adam(0.01);
  const std::string group = "--group=fc0:freeze";
  EXPECT_EQ(start({group, "--max_steps=3"}, recipe).code, 0);
  const std::string groups =
      "the list of groups of variables (group) was fc0:freeze and is now none";
  const std::tuple<std::vector<std::string>, std::string, bool> refused[] = {
      {{group, "--optimizer=sgd"}, "the optimizer was adam and is now sgd", true},
      {{group, "--beta1=0.5"}, "the option beta1 was 0.9 and is now 0.5", false},
      {{}, groups, true}};
  for (const auto& [flags, why, is_refused_by_name] : refused) {
    const TrainResult done = start(flags, recipe);
    EXPECT_EQ(done.code, 2) << why;
    EXPECT_THAT(done.error, testing::HasSubstr(why));
    if (!is_refused_by_name) continue;  // a warning
    std::vector<std::string> by_name = flags;
    by_name.push_back("--resume=" + directory_);
    const TrainResult named = run_train(by_name, recipe);
    EXPECT_EQ(named.code, 2) << why;
    EXPECT_THAT(named.error, testing::AllOf(testing::HasSubstr(why),
                                            testing::Not(testing::HasSubstr("VariableGetter"))));
  }
}

}  // namespace resumed_run_test
}  // namespace belfry
