#include "belfry/trainers/train.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/file_system.h"
#include "belfry/tests/trainers/small_problem.h"
#include "belfry/trainers/mnist.h"

namespace belfry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::unique_ptr<Dataset> small_data(bool train) { return smooth_data(train ? 70 : 10); }

Recipe small_recipe() {
  return {.model = smooth_model,
          .data = small_data,
          .optimizer = sgd(0.1),
          .batch_size = 8,
          .epochs = 2};
}

struct Result {
  int code;
  std::string out, error;
};

Result run(std::vector<std::string> arguments, const Recipe& recipe = small_recipe()) {
  arguments.insert(arguments.begin(), "/some/where/program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = train(static_cast<int>(argv.size()), argv.data(), recipe);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

class TrainTest : public testing::Test {
 protected:
  TrainTest()
      : json_(std::filesystem::path(testing::TempDir()) /
              (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
               ".json")) {
    std::filesystem::remove(json_);
  }
  ~TrainTest() override { std::filesystem::remove(json_); }

  nlohmann::json report() const {
    const std::vector<std::byte> bytes = local_file_system().read(json_);
    return nlohmann::json::parse(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

  std::filesystem::path json_;
};

TEST_F(TrainTest, PrintsHeaderProgressAndTableAndWritesJson) {
  const Result result = run({"--devices=cpu:2", "--threads=1", "--json=" + json_.string()});
  EXPECT_EQ(result.code, 0) << result.error;
  for (const char* part :
       {"program: replicated, collective on CPU:0 CPU:1", "8 per device, 16 in all",
        "4 steps per epoch", "leaves out 6 examples", "a smooth function", "step 1/8", "step 8/8",
        "test  loss", "params_hash", "replicas_equal"})
    EXPECT_THAT(result.out, HasSubstr(part)) << part;
  const nlohmann::json json = report();
  EXPECT_EQ(json["program"], "program");
  EXPECT_EQ(json["trainer"], "replicated");
  EXPECT_EQ(json["allreduce"], "collective");
  EXPECT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["batch_size"], 8);
  EXPECT_EQ(json["seed"], 1);
  EXPECT_EQ(json["threads"], 1);
  EXPECT_EQ(json["steps"], 8);
  EXPECT_EQ(json["epochs"], 2);
  EXPECT_GT(json["seconds"], 0);
  EXPECT_GT(json["examples_per_second"], 0);
  EXPECT_GT(json["loss"], 0);
  EXPECT_TRUE(json["test_accuracy"].is_null());
  EXPECT_EQ(std::string(json["params_hash"]).size(), 16u);
  EXPECT_EQ(std::string(json["state_hash"]).size(), 16u);
  EXPECT_EQ(json["replicas_equal"], true);
  EXPECT_EQ(json["peak_bytes"].size(), 2u);
  for (const auto& [device, bytes] : json["peak_bytes"].items()) EXPECT_GT(bytes, 0) << device;
}

TEST_F(TrainTest, ReportsTheTestAccuracyOfModelsThatMeasureIt) {
  Recipe recipe = small_recipe();
  recipe.model = [](Tower& tower, Output x, Output y) {
    tower.metric("accuracy", reduce_mean(x) * 0 + 0.75);
    return smooth_model(tower, x, y);
  };
  EXPECT_EQ(run({"--json=" + json_.string()}, recipe).code, 0);
  EXPECT_EQ(report()["test_accuracy"], 0.75);
}

TEST_F(TrainTest, GivesTheSameHashesInTwoProcessesAndModes) {
  std::vector<std::string> hashes;
  for (const char* trainer : {"--trainer=replicated", "--trainer=parameter_server"}) {
    EXPECT_EQ(run({trainer, "--devices=cpu:2", "--max_steps=3", "--json=" + json_.string()}).code,
              0);
    EXPECT_EQ(report()["steps"], 3);
    EXPECT_EQ(report()["epochs"], 0);
    hashes.push_back(report()["params_hash"]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(TrainTest, TrainsOnNamedDevices) {
  EXPECT_EQ(run({"--devices=/cpu:1", "--json=" + json_.string()}).code, 0);
  EXPECT_EQ(report()["devices"], nlohmann::json{"/job:localhost/replica:0/task:0/device:CPU:1"});
  EXPECT_EQ(report()["trainer"], "simple");
  EXPECT_TRUE(report()["allreduce"].is_null());
}

TEST_F(TrainTest, ReplacesTheRecipesScheduleByTheFlag) {
  Recipe recipe = small_recipe();
  recipe.optimizer = sgd([](const StepInfo&) { return 0.1; });
  EXPECT_EQ(run({"--json=" + json_.string()}, recipe).code, 0);
  const std::string scheduled = report()["params_hash"];
  EXPECT_EQ(run({"--learning_rate=0.1", "--json=" + json_.string()}, recipe).code, 0);
  EXPECT_EQ(report()["params_hash"], scheduled);
  EXPECT_EQ(run({"--learning_rate=0.2", "--json=" + json_.string()}, recipe).code, 0);
  EXPECT_NE(report()["params_hash"], scheduled);
}

TEST(Train, PrintsHelpAndTrainsNothing) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--batch_size"), testing::Not(HasSubstr("--data_dir"))));
}

TEST(Train, ExitsWith2ForMistakesOnTheCommandLineInOneLine) {
  for (const char* flag :
       {"--batchsize=3", "--devices=gpu:2", "--learning_rate=nan", "--trainer=simple",
        "--data_dir=/d", "--allreduce=colocate", "--epochs=x", "--gradient_repacking=4"}) {
    const Result result = run({flag});
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.error, testing::StartsWith("error: ")) << flag;
    EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << result.error;
  }
}

TEST(Train, ExitsWith1ForAllOtherErrorsInOneLine) {
  Recipe recipe = small_recipe();
  recipe.optimizer = sgd(-1);
  EXPECT_EQ(run({}, recipe).code, 1);
  recipe = small_recipe();
  recipe.data = [](bool) -> std::unique_ptr<Dataset> { throw IoError("bad\nfile"); };
  const Result result = run({}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.error, "error: bad file\n");
  EXPECT_EQ(run({"--batch_size=1000"}).code, 1);
  EXPECT_EQ(run({}, {}).code, 1);
  EXPECT_EQ(
      run({"--devices=cpu:1", "--learning_rate=0.1"}, {.model = smooth_model, .data = small_data})
          .code,
      1);
}

TEST(Train, RefusesAnUnwritableJsonBeforeTheDataAreRead) {
  Recipe recipe = small_recipe();
  bool read = false;
  recipe.data = [&](bool train) {
    read = true;
    return small_data(train);
  };
  const Result result = run({"--json=/no/such/folder/r.json"}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("--json=/no/such/folder/r.json"));
  EXPECT_FALSE(read);
}

TEST_F(TrainTest, KeepsAnExistingJsonWhenTrainingFails) {
  write_text_file(local_file_system(), json_, "{\"old\": 1}");
  EXPECT_EQ(run({"--batch_size=1000", "--json=" + json_.string()}).code, 1);
  EXPECT_EQ(report()["old"], 1);
}

TEST(Train, WritesJsonAloneToStdout) {
  const Result result = run({"--max_steps=1", "--json=/dev/stdout"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(nlohmann::json::parse(result.out)["steps"], 1);
  EXPECT_THAT(result.error, HasSubstr("params_hash"));
}

TEST(Train, HonoursMoreThreadsThanCoresWithAWarning) {
  const Result result = run({"--threads=64", "--max_steps=2", "--json=/dev/stdout"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(nlohmann::json::parse(result.out)["threads"], 64);
  EXPECT_THAT(result.error, HasSubstr("64 threads"));
}

TEST(Train, ReportsMissingFilesByName) {
  Recipe recipe = small_recipe();
  recipe.data = data::mnist;
  const Result result = run({"--data_dir=/no/such/folder"}, recipe);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("/no/such/folder/train-images-idx3-ubyte"));
}

}  // namespace
}  // namespace belfry
