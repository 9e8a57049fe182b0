// Programs with several losses: run directory, resume, JSON, table and flags.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/ops/dropout.h"
#include "belfry/tests/trainers/program/run_support.h"

namespace belfry {
namespace several_losses_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Output rivals(Tower& tower, Output x, Output y) {
  const Output noise = dropout(fill_like(x, 1), 0.5);
  const Output made = dense(tower, "gen", noise, {.units = 4});
  const auto judged = [&](Output in) {
    const VariableScope scope(tower.graph(), "disc", VariableReuse::kCreateOrGet);
    return dense(tower, "fc", tanh(in), {.units = 1});
  };
  const Output fake = judged(made);
  tower.loss("disc", reduce_mean(square(judged(x) - y)) + reduce_mean(square(fake)));
  tower.loss("gen", reduce_mean(square(fake - 1.0)));
  return {};
}

Recipe rivals_recipe(double gen_rate = 0.02) {
  return {.model = rivals,
          .data = small_data,
          .losses = {{.loss = "disc", .variables = {"disc"}, .optimizer = adam(0.01)},
                     {.loss = "gen", .variables = {"gen"}, .optimizer = adam(gen_rate)}},
          .global_batch_size = 8,
          .epochs = 2};
}

class SeveralLosses : public TrainingRunTest {};

TEST_F(SeveralLosses, OfARunThatWasStoppedResumeAsIfItHadNot) {
  Recipe failing = rivals_recipe();
  failing.callbacks = {
      std::make_shared<BeforeStep>(5, [](Trainer&) { throw Error("the machine is down"); })};
  EXPECT_EQ(start({"--shards=4", "--save_every_steps=2"}, failing).code, 1);
  const TrainResult resumed = start({"--devices=cpu:1", "--save_every_steps=2"}, rivals_recipe());
  EXPECT_EQ(resumed.code, 0) << resumed.error;
  EXPECT_THAT(resumed.out, HasSubstr("resuming at step 4"));
  const std::string hash = summary()["state_hash"];
  const std::vector<std::string> course = stats();
  EXPECT_THAT(
      course.front(),
      AllOf(HasSubstr("\"disc\""), HasSubstr("\"gen\""), HasSubstr("\"learning_rate/disc\":0.01"),
            HasSubstr("\"learning_rate/gen\":0.02"), Not(HasSubstr("\"learning_rate\""))));
  std::filesystem::remove_all(directory_);
  EXPECT_EQ(start({"--devices=cpu:4"}, rivals_recipe()).code, 0);
  EXPECT_EQ(summary()["state_hash"], hash);
  EXPECT_EQ(stats(), course);
}

TEST_F(SeveralLosses, AreInTheReportAndTheTable) {
  const TrainResult done = run_train({"--shards=4", "--json=" + json_.string()}, rivals_recipe());
  ASSERT_EQ(done.code, 0) << done.error;
  EXPECT_THAT(done.out, AllOf(HasSubstr("disc"), HasSubstr("gen")));
  const auto report = this->report();
  const double disc = report["metrics"]["disc"], gen = report["metrics"]["gen"];
  EXPECT_DOUBLE_EQ(report["loss"], disc + gen);
  EXPECT_TRUE(report["metrics"].contains("validation_gen"));
  EXPECT_EQ(report["k_dependent_because"], nullptr);
  ASSERT_EQ(report["losses"].size(), 2u);
  EXPECT_EQ(report["losses"][1]["loss"], "gen");
  EXPECT_EQ(report["losses"][1]["trained_by"],
            "gen: gen by Adam(beta1=0.9, beta2=0.999, epsilon=1e-08)");
  EXPECT_EQ(report["losses"][1]["learning_rate"], "0.02");
}

TEST_F(SeveralLosses, TakeTheFlagsOfTheOptimizerAll) {
  const auto rates = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all{"--json=" + json_.string(), "--max_steps=2"};
    all.insert(all.end(), flags.begin(), flags.end());
    const TrainResult done = run_train(all, rivals_recipe());
    EXPECT_EQ(done.code, 0) << done.error;
    const auto losses = report()["losses"];
    return cat(losses[0]["learning_rate"].get<std::string>(), " ",
               losses[1]["learning_rate"].get<std::string>());
  };
  EXPECT_EQ(rates({}), "0.01 0.02");
  EXPECT_EQ(rates({"--learning_rate=0.5", "--moving_average=0.9"}), "0.5 0.5");
}

TEST_F(SeveralLosses, OfARunResumeOnlyAsTheyWereTrained) {
  EXPECT_EQ(start({"--max_steps=2"}, rivals_recipe()).code, 0);
  const TrainResult faster = start({"--max_steps=4"}, rivals_recipe(0.03));
  EXPECT_NE(faster.code, 0);
  EXPECT_THAT(faster.error, HasSubstr("the learning rate of gen was 0.02 and is now 0.03"));
  Recipe swapped = rivals_recipe(0.01);
  EXPECT_EQ(start({"--max_steps=2", "--overwrite", "--resume=never"}, swapped).code, 0);
  std::swap(swapped.losses[0], swapped.losses[1]);
  EXPECT_THAT(start({"--max_steps=4"}, swapped).error,
              HasSubstr("how the losses are trained was "));
}

TEST_F(SeveralLosses, LeaveNoPlaceForAnotherOptimizer) {
  Recipe both = rivals_recipe();
  both.optimizer = sgd(0.1);
  EXPECT_THAT(run_train({}, both).error,
              HasSubstr("the recipe has losses, each with its optimizer, and an optimizer "
                        "besides; leave that out"));
}

}  // namespace several_losses_test
}  // namespace belfry
