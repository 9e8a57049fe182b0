// Training programs that evaluate: when, on which data, and what they report.
#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/towers/metrics.h"

namespace belfry {
namespace train_evaluation_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(TrainTest, ReadsNoTestDataIfItNeverEvaluates) {
  Recipe recipe = small_recipe();
  recipe.data = [](bool train) -> std::unique_ptr<Dataset> {
    if (!train) throw IoError("the test data were read");
    return small_data(true);
  };
  const std::string json = "--json=" + json_.string();
  EXPECT_EQ(run_train({json}, recipe).code, 1);
  EXPECT_EQ(run_train({"--eval_every_epochs=0", json}, recipe).code, 0);
  EXPECT_TRUE(report()["validation_loss"].is_null());
  const std::string run = "--run_dir=" + path(".run");
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--early_stop=validation_loss:min:2"},
        {"--best_metric=validation_loss:min", run}}) {
    std::vector<std::string> all = flags;
    all.push_back("--eval_every_epochs=0");
    const TrainResult refused = run_train(all, recipe);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.error,
                HasSubstr(flags[0] + " is a metric of evaluations, which --eval_every_epochs=0 "
                                     "turns off; leave one of them out, or evaluate by "
                                     "--eval_every_steps=N"));
  }
  recipe.data = [](bool train) { return train ? small_data(true) : nullptr; };
  const TrainResult refused = run_train({"--early_stop=validation_loss:min:2"}, recipe);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("as there are no data to evaluate"));
}

TEST_F(TrainTest, EvaluatesWhenItIsTold) {
  const TrainResult done = run_train(
      {"--devices=cpu:1", "--eval_every_epochs=0", "--eval_every_steps=7", "--eval_batches=1"});
  EXPECT_EQ(done.code, 0) << done.error;
  for (const char* const line : {"epoch 1, step 7: test  loss", "epoch 2, step 14: test  loss",
                                 "epoch 2, step 16: test  loss"})
    EXPECT_THAT(done.out, HasSubstr(line)) << line;
  EXPECT_THAT(done.out, Not(HasSubstr("step 8: test")));
}

TEST_F(TrainTest, OnlyEvaluatesTheWeightsOfARun) {
  const std::string run = path(".run"), json = "--json=" + json_.string();
  EXPECT_EQ(run_train({"--run_dir=" + run, json}).code, 0);
  const nlohmann::json trained = report();
  for (const std::string& weights : {"--load=" + run, "--resume=" + run}) {
    const TrainResult done = run_train({"--evaluate_only", weights, json, "--devices=cpu:2"});
    EXPECT_EQ(done.code, 0) << done.error;
    const nlohmann::json evaluated = report();
    EXPECT_NEAR(evaluated["validation_loss"].get<double>(),
                trained["validation_loss"].get<double>(), 1e-12);
    EXPECT_EQ(evaluated["params_hash"], trained["params_hash"]);
    EXPECT_THAT(done.out, AllOf(HasSubstr(": test  loss"), Not(HasSubstr("step 1/"))));
  }
  // In the batches of the run.
  EXPECT_EQ(run_train({"--run_dir=" + path(".other"), "--global_batch_size=4", json}).code, 0);
  for (const std::string& weights : {"--load=" + path(".other"), "--resume=" + path(".other")}) {
    EXPECT_EQ(run_train({"--evaluate_only", weights, json}).code, 0);
    EXPECT_EQ(report()["global_batch_size"], 4) << weights;
  }
  std::filesystem::remove_all(path(".other"));
  EXPECT_EQ(run_train({"--evaluate_only", "--load=" + run, json}).code, 0);
  EXPECT_EQ(report()["steps"], 0);
  EXPECT_TRUE(report()["loss"].is_null());
  // It needs neither the training data, nor as many samples as a batch has, nor a part to train.
  Recipe recipe = small_recipe();
  recipe.data = [](bool train) {
    if (train) throw IoError("the training data were read");
    return small_data(false);
  };
  recipe.optimizer = recipe.optimizer.with_groups({{.pattern = "*", .freeze = true}});
  for (const std::string& weights : {"--load=" + run, "--resume=" + run}) {
    const TrainResult done =
        run_train({"--evaluate_only", weights, "--global_batch_size=64", json}, recipe);
    EXPECT_EQ(done.code, 0) << done.error;
    EXPECT_THAT(done.error, Not(HasSubstr("resume: not the same bits")));
    EXPECT_NEAR(report()["validation_loss"].get<double>(), trained["validation_loss"].get<double>(),
                1e-12);
  }
  recipe.data = [](bool train) { return train ? small_data(true) : nullptr; };
  const TrainResult refused = run_train({"--evaluate_only", "--load=" + run}, recipe);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.error, HasSubstr("there are no data to evaluate"));
  std::filesystem::remove_all(run);
}

// Also in the files of a run, and for options that choose by a metric.
TEST_F(TrainTest, ReportsTheMetricsOfEachValidationSet) {
  Recipe recipe = small_recipe();
  recipe.validation = {{"far", [](bool) { return smooth_data(33); }}};
  const std::string run = path(".run");
  const TrainResult done =
      run_train({"--run_dir=" + run, "--best_metric=validation_far_loss:min",
                 "--early_stop=validation_far_mean_x:min:9", "--json=" + json_.string()},
                recipe);
  EXPECT_EQ(done.code, 0) << done.error;
  const nlohmann::json metrics = report()["metrics"];
  for (const char* const name : {"loss", "validation_loss", "validation_far_loss"})
    EXPECT_TRUE(metrics.at(name).is_number()) << name;
  EXPECT_THAT(done.out, AllOf(HasSubstr("  validation_far_loss "), HasSubstr("test (far): ")));
  const std::vector<std::byte> bytes = local_file_system().read(run + "/stats.jsonl");
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              HasSubstr("\"validation_far_mean_x\":"));
  std::filesystem::remove_all(run);
  recipe.validation = {{"far", [](bool) { return std::unique_ptr<Dataset>(); }}};
  EXPECT_THAT(run_train({}, recipe).error, HasSubstr("the validation set 'far' gave no data"));
}

// Metrics that state sums reach what metrics that are means reach.
TEST_F(TrainTest, RecordsMetricsOfSums) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    tower.metric("error", metrics::root_mean_square(y));
    return smooth_model(tower, x, y);
  };
  const std::string run = path(".run");
  const TrainResult done = run_train({"--run_dir=" + run, "--best_metric=validation_error:min",
                                      "--early_stop=error:min:9", "--json=" + json_.string()},
                                     recipe);
  EXPECT_EQ(done.code, 0) << done.error;
  EXPECT_TRUE(report()["metrics"]["error"].is_number());
  double sum = 0;
  for (int i = 0; i < 10; ++i) {
    double of_x = 0;
    for (int j = 0; j < 4; ++j) of_x += std::sin(static_cast<double>(7 * i + 3 * j + 1)) * (j + 1);
    sum += std::cos(of_x) * std::cos(of_x);
  }
  EXPECT_NEAR(report()["metrics"]["validation_error"].get<double>(), std::sqrt(sum / 10), 1e-12);
  EXPECT_EQ(report()["metrics_depend_on_devices"], nlohmann::json::array());
  EXPECT_THAT(done.out, HasSubstr("training      validation\n"));
  const std::vector<std::byte> bytes = local_file_system().read(run + "/stats.jsonl");
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              AllOf(HasSubstr("\"error\":"), HasSubstr("\"validation_error\":")));
  std::filesystem::remove_all(run);
}

TEST_F(TrainTest, EvaluatesWithMovingAverages) {
  const auto run = [&](std::vector<std::string> flags) {
    flags.push_back("--json=" + json_.string());
    EXPECT_EQ(run_train(flags).code, 0);
    return report();
  };
  const nlohmann::json plain = run({}), averaged = run({"--moving_average=0.9"});
  EXPECT_EQ(averaged["params_hash"], plain["params_hash"]);
  EXPECT_NE(averaged["state_hash"], plain["state_hash"]);
  EXPECT_NE(averaged["validation_loss"], plain["validation_loss"]);
  EXPECT_EQ(run({"--moving_average=0"})["validation_loss"], plain["validation_loss"]);
  // A short run evaluates hardly more than first values, unless averages forget these soon.
  const double slow = run({"--moving_average=0.9999"})["validation_loss"],
               warm =
                   run({"--moving_average=0.9999", "--moving_average_warmup"})["validation_loss"],
               trained = plain["validation_loss"];
  EXPECT_LT(std::abs(warm - trained), std::abs(slow - trained) / 2);
}

}  // namespace train_evaluation_test
}  // namespace belfry
