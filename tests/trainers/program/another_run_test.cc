// What makes a run another one, so that it is not resumed.
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/tests/trainers/program/run_support.h"

namespace belfry {
namespace another_run_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainingRunTest, RefusesWhatWouldBeAnotherRun) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  Recipe deeper = small_recipe();
  deeper.model = [](Tower& tower, Output x, Output y) { return smooth_model(tower, x, y) * 2; };
  Recipe others = small_recipe();
  others.data = [](bool train) { return smooth_data(train ? 71 : 10); };
  Recipe momentum_recipe = small_recipe();
  momentum_recipe.optimizer = momentum(0.1);
  const auto refused = [&](std::vector<std::string> flags, const Recipe& recipe,
                           const std::string& why) {
    flags.push_back("--devices=cpu:1");
    const TrainResult done = start(std::move(flags), recipe);
    EXPECT_EQ(done.code, 2) << why;
    EXPECT_THAT(done.error, AllOf(HasSubstr("was another one: "), HasSubstr(why)));
  };
  refused({"--seed=2"}, small_recipe(), "the seed was 1 and is now 2");
  refused({"--batch_size=4"}, small_recipe(), "the global batch was 8 and is now 4");
  refused({"--learning_rate=0.5"}, small_recipe(), "the learning rate was 0.1 and is now 0.5");
  refused({"--weight_decay=0.25"}, small_recipe(), "the weight decay was none and is now 0.25");
  refused({"--group=fc0:rate=2", "--group=fc1:freeze"}, small_recipe(),
          "the list of groups of variables (group) was none and is now fc0:rate=2;fc1:freeze");
  refused({"--clip_norm=0.5"}, small_recipe(), "(clip_norm) was 0 and is now 0.5");
  refused({"--clip_value=0.5"}, small_recipe(), "(clip_value) was 0 and is now 0.5");
  refused({"--optimizer=momentum", "--learning_rate=0.1"}, small_recipe(),
          "the optimizer was sgd and is now momentum");
  refused({"--uneven=weight"}, small_recipe(), "(uneven) was drop and is now weight");
  refused({"--moving_average=0.9"}, small_recipe(),
          "the moving average of weights (moving_average) was none and is now 0.9");
  refused({}, deeper, "the model's graph");
  refused({}, others, "the number of training samples was 70 and is now 71");
  refused({}, momentum_recipe, "the optimizer was sgd and is now momentum");
  EXPECT_EQ(checkpoints().back(), "step-00000003");
  // A user who names a checkpoint is told.
  const TrainResult told = run_train({"--devices=cpu:1", "--seed=2", "--epochs=1",
                                      "--resume=" + directory_ + "/checkpoints/latest"});
  EXPECT_EQ(told.code, 0);
  EXPECT_THAT(told.error,
              HasSubstr("resume: not the same bits because the seed was 1 and is now 2"));
}

// The averages are variables, so even a user who names the checkpoint cannot leave them out.
TEST_F(TrainingRunTest, NamesTheOptionsOfMovingAveragesThatDiffer) {
  const std::string had = "the moving average of weights (moving_average) was 0.9";
  const std::string warmed = had + " with moving_average_warmup and is now ";
  EXPECT_EQ(start({"--max_steps=3", "--moving_average=0.9", "--moving_average_warmup"}).code, 0);
  EXPECT_THAT(start({"--moving_average=0.9"}).error, HasSubstr(warmed + "0.9;"));
  for (const auto& [flags, now] : {std::pair<std::vector<std::string>, const char*>{{}, "none"},
                                   {{"--moving_average=0.9"}, "0.9"}}) {
    std::vector<std::string> all = flags;
    all.push_back("--resume=" + directory_);
    const TrainResult done = run_train(all);
    EXPECT_EQ(done.code, 2);
    EXPECT_THAT(done.error, AllOf(HasSubstr("--resume="), HasSubstr(warmed + now),
                                  HasSubstr("give what it had, or start a new run"),
                                  Not(HasSubstr("did you mean"))));
  }
}

// Trains the layers whose names do not begin with the text that is given.
struct Freeze final : VariableGetter {
  explicit Freeze(std::string name) : prefix(std::move(name)) {}
  void request(VariableRequest& request) override {
    if (request.name.starts_with(prefix)) request.options.trainable = false;
  }
  std::string prefix;
};

Recipe recipe_that_freezes(const std::string& prefix) {
  Recipe recipe = small_recipe();
  recipe.optimizer = adam(0.01);
  recipe.model = [prefix](Tower& tower, Output x, Output y) {
    Freeze freeze(prefix);
    const VariableScope scope(tower.graph(), freeze);
    return smooth_model(tower, x, y);
  };
  return recipe;
}

TEST_F(TrainingRunTest, NamesAVariableThatOnlyOneOfBothRunsTrained) {
  const std::string how =
      " (VariableOptions::trainable, which a layer or a VariableGetter may have set)";
  EXPECT_EQ(start({"--max_steps=3"}, recipe_that_freezes("fc1/b")).code, 0);
  const auto refused = [&](std::vector<std::string> flags, const char* prefix,
                           const std::string& why) {
    const TrainResult done = start(std::move(flags), recipe_that_freezes(prefix));
    EXPECT_EQ(done.code, 2) << prefix;
    EXPECT_THAT(done.error,
                AllOf(HasSubstr("the set of trained variables has changed: " + why + how),
                      Not(HasSubstr("Adam"))));
  };
  const std::string to_name = "--resume=" + directory_;
  refused({}, "nothing", "'fc1/b' was not trained, and is now");
  refused({to_name}, "nothing", "'fc1/b' was not trained, and is now");
  refused({}, "fc1", "'fc1/W' was trained, and is not now");
  refused({to_name}, "fc1", "'fc1/W' was trained, and is not now");
  EXPECT_EQ(start({"--epochs=1"}, recipe_that_freezes("fc1/b")).code, 0) << "it is the same run";
}

TEST_F(TrainingRunTest, NamesAFlagOfTheProgramThatHasMadeAnotherModel) {
  std::int64_t units = 5;
  Recipe recipe = small_recipe();
  recipe.flags = {{"units", &units, "of the hidden layer"}};
  recipe.model = [&](Tower& tower, Output x, Output y) {
    const Output hidden = tanh(dense(tower, "fc0", x, {.units = static_cast<int>(units)}));
    return reduce_mean(square(dense(tower, "fc1", hidden, {.units = 1}) - y));
  };
  EXPECT_EQ(start({"--max_steps=1"}, recipe).code, 0);
  const TrainResult other = start({"--max_steps=2", "--units=6"}, recipe);
  EXPECT_NE(other.code, 0);
  EXPECT_THAT(other.error, HasSubstr("; --units was 5 and is now 6"));
}

}  // namespace another_run_test
}  // namespace belfry
