// Training whose loss or weights become NaN or infinite: nothing is lost, and the program says so.
#include "belfry/trainers/core/divergence.h"

#include <cmath>
#include <limits>

#include "belfry/framework/base/text.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_checkpoint.h"

namespace belfry {
namespace divergence_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// With this rate the weights overflow in the third step, or a little later.
const std::string kWild = "--learning_rate=1e100";

class DivergenceTest : public TrainTest {
 protected:
  ~DivergenceTest() override { std::filesystem::remove_all(checkpoint_); }
  std::string json_flag() const { return "--json=" + json_.string(); }

  const std::string checkpoint_ = path(".checkpoint");
  const std::string save_ = "--save_checkpoint=" + checkpoint_;
  const std::string restore_ = "--restore_checkpoint=" + checkpoint_;
};

TEST_F(DivergenceTest, ExitsWithOneAndNamesTheStepInEveryMode) {
  const std::vector<std::vector<std::string>> modes{
      {"--devices=cpu:1"},
      {"--devices=cpu:2"},
      {"--devices=cpu:3", "--batch_size=4", "--uneven=weight"},
      {"--devices=cpu:3", "--batch_size=4", "--uneven=pad"},
      {"--devices=cpu:2", "--trainer=parameter_server"},
      {"--devices=cpu:2", "--trainer=async"},
      {"--devices=cpu:2", "--trainer=async", "--async=free"},
      {"--devices=cpu:1", "--max_steps=5"}};
  for (std::vector<std::string> flags : modes) {
    flags.insert(flags.end(), {kWild, json_flag()});
    SCOPED_TRACE(join(flags, " "));
    const TrainResult result = run_train(flags);
    EXPECT_EQ(result.code, 1);
    const auto report = this->report();
    ASSERT_TRUE(report["first_nonfinite_step"].is_number_integer());
    const std::int64_t since = report["first_nonfinite_step"];
    EXPECT_GT(since, 1);
    EXPECT_LE(since, 5);
    EXPECT_TRUE(report["loss"].is_null());
    EXPECT_THAT(std::string(report["nonfinite_variable"]), HasSubstr("(built at"));
    EXPECT_THAT(result.error, HasSubstr(cat("not finite since step ", since, "; '")));
    EXPECT_THAT(result.error, HasSubstr(cat(" at step ", since, "; a smaller learning rate")));
    EXPECT_THAT(result.error, HasSubstr("error: training diverged: the loss is "));
    EXPECT_THAT(result.out, AllOf(HasSubstr("params_hash"), Not(HasSubstr("-nan"))));
  }
}

TEST_F(DivergenceTest, IsNotClaimedOfTrainingThatEndsWell) {
  EXPECT_EQ(run_train({"--max_steps=3", json_flag()}).code, 0);
  EXPECT_TRUE(report().at("first_nonfinite_step").is_null());
  EXPECT_TRUE(report().at("nonfinite_variable").is_null());
}

TEST_F(DivergenceTest, OfWeightsAloneIsOneToo) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) { return smooth_model(tower, x, y) * 1e3; };
  const TrainResult result =
      run_train({"--learning_rate=1e308", "--max_steps=1", json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, AllOf(HasSubstr("training diverged: 'fc"), HasSubstr("inf at element"),
                                  Not(HasSubstr("the loss is"))));
  EXPECT_TRUE(report()["loss"].is_number());
  EXPECT_TRUE(report()["first_nonfinite_step"].is_null());
}

// The last step leaves weights that are finite, but useless.
TEST_F(DivergenceTest, OfTheTestLossAloneIsOneToo) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) { return smooth_model(tower, x, y) * 1e3; };
  const TrainResult result =
      run_train({"--learning_rate=1e200", "--max_steps=1", save_, json_flag()}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("error: training diverged: the test loss is "));
  EXPECT_TRUE(report()["loss"].is_number());
  EXPECT_TRUE(report().at("validation_loss").is_null());
  EXPECT_TRUE(report()["nonfinite_variable"].is_null());
  const TrainResult restored = run_train({"--max_steps=1", restore_}, recipe);
  EXPECT_EQ(restored.code, 1) << "though nothing was left to train";
  EXPECT_THAT(restored.error, HasSubstr("error: training diverged: the test loss is "));
}

TEST_F(DivergenceTest, KeepsTheCheckpointOfTheRunThatItBeganWith) {
  EXPECT_EQ(run_train({"--epochs=1", save_, json_flag()}).code, 0);
  const std::string hash = report()["state_hash"];
  for (const std::string trainer : {"--trainer=replicated", "--trainer=async"}) {
    const TrainResult result =
        run_train({"--devices=cpu:1", "--epochs=7", trainer, kWild, restore_, save_});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.error,
                AllOf(HasSubstr("the loss is not finite since step "),
                      HasSubstr(checkpoint_ + " was kept"), HasSubstr("save to another path")));
    EXPECT_EQ(run_train({"--devices=cpu:1", "--epochs=1", restore_, json_flag()}).code, 0);
    EXPECT_EQ(report()["state_hash"], hash);
  }
}

TEST_F(DivergenceTest, OfTheLossAloneReplacesNoCheckpointEither) {
  EXPECT_EQ(run_train({"--epochs=1", save_, json_flag()}).code, 0);
  const std::string hash = report()["state_hash"];
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    const Output loss = smooth_model(tower, x, y);
    return loss + stop_gradient(loss * 1e308 * 1e308);
  };
  const TrainResult result = run_train({"--epochs=2", restore_, save_}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, AllOf(HasSubstr("the loss is not finite since step "),
                                  HasSubstr(checkpoint_ + " was kept")));
  EXPECT_EQ(run_train({"--epochs=1", restore_, json_flag()}).code, 0);
  EXPECT_EQ(report()["state_hash"], hash);

  const std::string elsewhere = checkpoint_ + "_elsewhere";
  EXPECT_EQ(run_train({"--epochs=3", restore_, "--save_checkpoint=" + elsewhere}, recipe).code, 1);
  EXPECT_THAT(run_train({"--epochs=1", "--restore_checkpoint=" + elsewhere}).error,
              HasSubstr("had a loss that was not finite since step "));
  std::filesystem::remove_all(elsewhere);
}

TEST_F(DivergenceTest, IsSavedWhereThereIsNothingToLoseAndNamedByTheNextRun) {
  const TrainResult first = run_train({"--epochs=1", kWild, save_});
  EXPECT_EQ(first.code, 1);
  EXPECT_THAT(first.error, AllOf(HasSubstr("checkpoint " + checkpoint_ + " is saved with it"),
                                 HasSubstr("error: training diverged")));
  const TrainResult next = run_train({"--epochs=2", restore_, json_flag()});
  EXPECT_EQ(next.code, 1);
  EXPECT_THAT(next.error, HasSubstr("has values that are not finite: 'fc"));
  EXPECT_EQ(report()["first_nonfinite_step"], report()["steps"].get<int>() / 2 + 1)
      << "the first step of this run";
  EXPECT_EQ(run_train({"--epochs=1", restore_}).code, 1) << "though nothing was left to train";
}

TEST_F(DivergenceTest, OfATrainerThatIsNotRunByTrainIsNotSavedEither) {
  const auto data = smooth_data(16);
  Trainer trainer(find_trainer("simple"),
                  {.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4}, *data);
  save_training(trainer, checkpoint_);
  const Variable w = trainer.graph().stored_variable("fc1/W");
  Tensor bad = trainer.session().read(w);
  bad.mutable_data<double>()[2] = -std::numeric_limits<double>::infinity();
  trainer.session().write(w, bad);
  EXPECT_THROW(save_training(trainer, checkpoint_), InvalidArgument);
  const Divergence found = find_divergence(trainer);
  EXPECT_FALSE(found.loss_since);
  EXPECT_THAT(found.str(), AllOf(HasSubstr("'fc1/W' f64[5,1]"), HasSubstr("-inf at element 2")));
}

// One sample has a loss that is not finite. f16 skips the steps with this sample.
TEST_F(DivergenceTest, BeginsWithTheFirstOfTheLastLossesThatAreNotFinite) {
  struct Losses : Callback {
    std::optional<std::int64_t> since;
    void after_step(Trainer& trainer, const StepInfo& info) override {
      if (std::isfinite(trainer.metric("loss")))
        since.reset();
      else if (!since)
        since = info.step + 1;
    }
  };
  std::vector<float> ones(8, 1), halves(8, 0.5F);
  halves[5] = std::numeric_limits<float>::quiet_NaN();
  const TensorDataset data({{"x", Tensor({8, 1}, ones), DType::kF32, {1}},
                            {"y", Tensor({8, 1}, halves), DType::kF32, {1}}},
                           "one NaN");
  std::set<bool> ended_well;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const auto losses = std::make_shared<Losses>();
    Trainer trainer(find_trainer("simple"),
                    {.model =
                         [](Tower& tower, Output x, Output y) {
                           return reduce_mean(square(dense(tower, "fc", x, {.units = 1}) - y));
                         },
                     .optimizer = sgd(0.1),
                     .batch_size = 2,
                     .epochs = 3,
                     .seed = seed,
                     .precision = Precision::kF16,
                     .loss_scale = {.initial = 1},
                     .callbacks = {losses}},
                    data);
    trainer.train();
    EXPECT_EQ(trainer.not_finite_since(), losses->since);
    EXPECT_EQ(trainer.loss_scale()->skipped_steps, 3);
    EXPECT_EQ(find_divergence(trainer).variable, "") << "those steps were skipped";
    ended_well.insert(!losses->since);
  }
  EXPECT_EQ(ended_well.size(), 2u);
}

}  // namespace divergence_test
}  // namespace belfry
