// Runs that start from the weights of another.
#include "belfry/tests/trainers/program/run_support.h"
#include "belfry/trainers/optimizers/weight_averages.h"

namespace belfry {
namespace training_load_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class TrainingLoadTest : public TrainingRunTest {};

TEST_F(TrainingLoadTest, LoadsWhatBothHave) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  Recipe wider = small_recipe();
  wider.optimizer = adam(0.0);
  wider.model = [](Tower& tower, Output x, Output y) {
    return smooth_model(tower, x, y) +
           reduce_mean(square(dense(tower, "other", x, {.units = 1}))) * 0.0;
  };
  const std::string hash = report()["params_hash"];
  const std::string from = "--load=" + directory_ + "/checkpoints/latest";
  const TrainResult done =
      run_train({"--devices=cpu:1", "--max_steps=1", from, "--json=" + json_.string()}, wider);
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, AllOf(HasSubstr("loaded 4 variables"),
                              HasSubstr("not in it, so these start anew: "), HasSubstr("other/W")));
  Recipe same = small_recipe();
  same.optimizer = sgd(0.0);
  EXPECT_EQ(run_train({"--devices=cpu:1", "--max_steps=1",
                       "--load=" + directory_ + "/checkpoints/latest", "--json=" + json_.string()},
                      same)
                .code,
            0);
  EXPECT_EQ(report()["params_hash"], hash);
}

TEST_F(TrainingLoadTest, LooksForWeightsBeforeItReadsData) {
  const TrainResult refused = run_train({"--load=/nope"}, unreadable_recipe());
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, AllOf(HasSubstr("--load=/nope: "), Not(HasSubstr("the data were"))));
}

TEST_F(TrainingLoadTest, LoadsAModelWhoseHeadIsReplaced) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const std::string from = "--load=" + directory_ + "/checkpoints/latest";
  const auto with_head = [](const char* body, const char* head) {
    Recipe recipe = small_recipe();
    recipe.model = [=](Tower& tower, Output x, Output y) {
      const Output hidden = tanh(dense(tower, body, x, {.units = 5}));
      return reduce_mean(square(dense(tower, head, hidden, {.units = 3}) - y));
    };
    return recipe;
  };
  const TrainResult done =
      run_train({"--devices=cpu:2", "--max_steps=1", from}, with_head("fc0", "fc1"));
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, HasSubstr("loaded 2 variables"));
  EXPECT_THAT(done.out, HasSubstr("of another shape, so these start anew: fc1/W (f64[5,1] there, "
                                  "f64[5,3] here), fc1/b (f64[1] there, f64[3] here)"));
  const TrainResult none =
      run_train({"--devices=cpu:2", "--max_steps=1", from}, with_head("body", "fc1"));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.error, AllOf(HasSubstr("--load="), HasSubstr("has no variable of this graph"),
                                HasSubstr("fc1/W (f64[5,1] there")));
}

TEST_F(TrainingLoadTest, AveragesBeginAtTheWeightsThatAreLoaded) {
  EXPECT_EQ(start({"--devices=cpu:1", "--max_steps=3"}).code, 0);
  const std::string from = "--load=" + directory_ + "/checkpoints/latest";
  for (const char* devices : {"--devices=cpu:1", "--devices=cpu:2"}) {
    std::vector<double> weights, averages;
    const Recipe recipe = recipe_that(0, [&](Trainer& trainer) {
      for (const Variable variable : trainer.towers()[0].trainables) {
        const Tensor value = trainer.session().read(variable);
        EXPECT_EQ(trainer.session().read(average_of(variable)), value) << variable.name();
      }
    });
    const TrainResult done =
        run_train({devices, "--max_steps=1", "--moving_average=0.9", from}, recipe);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.out, Not(HasSubstr("start anew")));
  }
}

}  // namespace training_load_test
}  // namespace belfry
