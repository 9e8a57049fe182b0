#include "belfry/trainers/train.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/file_system.h"
#include "belfry/tests/trainers/small_problem.h"
#include "belfry/trainers/mnist.h"

namespace belfry {
namespace train_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

  std::string path(const char* name) const { return json_.string() + name; }

  std::filesystem::path json_;
};

// Data that a dry run must not read.
Recipe unreadable_recipe() {
  Recipe recipe = small_recipe();
  recipe.data = [](bool) -> std::unique_ptr<Dataset> {
    const std::vector<Dataset::Field> fields = small_data(true)->signature();
    return std::make_unique<LazyDataset>(
        fields, []() -> std::unique_ptr<Dataset> { throw IoError("the data were read"); });
  };
  return recipe;
}

TEST_F(TrainTest, DividesBatchesAsItIsTold) {
  const Result result = run({"--devices=cpu:3", "--uneven=weight", "--tower_weights=2,1,1",
                             "--batch_size=4", "--json=" + json_.string()});
  EXPECT_EQ(result.code, 0) << result.error;
  for (const char* part : {"6 + 3 + 3 per device, 12 in all", "6 steps per epoch",
                           "the last batch of an epoch has 10 examples: 5 + 3 + 2"})
    EXPECT_THAT(result.out, HasSubstr(part)) << part;
  EXPECT_EQ(report()["uneven"], "weight");
  EXPECT_EQ(report()["tower_weights"], (nlohmann::json{2, 1, 1}));
  EXPECT_EQ(report()["steps"], 12);
  EXPECT_EQ(report()["replicas_equal"], true);
  const Result refused = run({"--devices=cpu:3", "--uneven=error", "--batch_size=4"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.error, HasSubstr("leave 10 over"));
  EXPECT_EQ(run({"--uneven=pad", "--batch_size=500"}).code, 0);
}

TEST_F(TrainTest, SaysWhatARestoredRunDid) {
  const std::string one_device = "--devices=cpu:1";
  EXPECT_EQ(run({one_device, "--epochs=1", "--save_checkpoint=" + path(".checkpoint")}).code, 0);
  const std::string restore = "--restore_checkpoint=" + path(".checkpoint");
  const Result none = run({one_device, "--epochs=1", restore, "--json=" + json_.string()});
  EXPECT_EQ(none.code, 0) << none.error;
  EXPECT_THAT(none.out, HasSubstr("epoch 1, step 8: test"));
  EXPECT_THAT(none.out, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("\n  loss "))));
  EXPECT_TRUE(report()["loss"].is_null());
  const Result one = run({one_device, "--max_steps=9", restore});
  EXPECT_EQ(one.code, 0) << one.error;
  EXPECT_THAT(one.out, HasSubstr("step 9/9  epoch 2/2"));
  EXPECT_THAT(one.out, Not(HasSubstr("examples/s ("))) << "of the first step of a run";
}

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
  EXPECT_EQ(json["canonical"], true);
  EXPECT_EQ(json["gradient_repacking"], 0);
  EXPECT_EQ(json["small_tensors_kb"], 0);
  EXPECT_GT(json["bucket_mb"], 0);
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

TEST_F(TrainTest, SaysWhetherTheSumIsCanonicalForSoManyDevices) {
  const auto canonical = [&](std::vector<std::string> flags) {
    flags.push_back("--max_steps=1");
    flags.push_back("--json=" + json_.string());
    EXPECT_EQ(run(flags).code, 0);
    return report()["canonical"];
  };
  EXPECT_EQ(canonical({"--devices=cpu:4", "--allreduce=halving_doubling"}), true);
  EXPECT_EQ(canonical({"--devices=cpu:3", "--allreduce=halving_doubling"}), false);
  EXPECT_EQ(canonical({"--devices=cpu:2", "--allreduce=collective:1k:ring"}), false);
  EXPECT_EQ(canonical({"--devices=cpu:3", "--allreduce=shuffle"}), true);
  EXPECT_EQ(canonical({"--devices=cpu:3", "--trainer=parameter_server"}), true);
  EXPECT_EQ(canonical({"--devices=cpu:1"}), true) << "nothing is combined";
  EXPECT_EQ(canonical({"--devices=cpu:1", "--trainer=replicated", "--allreduce=ring"}), true);
}

TEST_F(TrainTest, PacksSmallTensorsWithoutChangingTheResult) {
  std::vector<std::string> hashes;
  for (const char* kib : {"0", "1", "1000"}) {
    EXPECT_EQ(run({"--devices=cpu:3", std::string("--small_tensors_kb=") + kib,
                   "--json=" + json_.string()})
                  .code,
              0);
    hashes.push_back(report()["state_hash"]);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0], hashes[2]);
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

TEST_F(TrainTest, PlansADryRunForGpusThatDoNotExistWithoutReadingData) {
  const Result result =
      run({"--dry_run", "--devices=gpu:4", "--json=" + json_.string()}, unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  const std::string gpu = "/job:localhost/replica:0/task:0/device:GPU:";
  for (const std::string& line :
       {"fc0/W: (Variable): " + gpu + "0\n", "tower3/fc0/W: (Variable): " + gpu + "3\n",
        "tower2/fc0/MatMul: (MatMul): " + gpu + "2\n",
        "tower-pred-1/fc0/MatMul: (MatMul): " + gpu + "1\n", gpu + "3: 4 variables, 248 bytes"})
    EXPECT_THAT(result.out, HasSubstr(line));
  const nlohmann::json devices = report()["devices"];
  ASSERT_EQ(devices.size(), 5u);
  EXPECT_EQ(devices[4]["device"], gpu + "3");
  EXPECT_EQ(devices[4]["variables"], 4);
  EXPECT_EQ(devices[4]["variable_bytes"], 8 * (4 * 5 + 5 + 5 + 1));
  EXPECT_GT(devices[4]["peak_bytes"], devices[4]["variable_bytes"]);
}

TEST_F(TrainTest, PlansLogicalGpusThatShareTheMemoryOfAPhysicalOne) {
  const Result result = run({"--dry_run", "--devices=/gpu:3,/gpu:0,/gpu:1", "--logical_gpus=2",
                             "--json=" + json_.string()},
                            unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  const std::string gpu = "/job:localhost/replica:0/task:0/device:GPU:";
  EXPECT_THAT(result.out, AllOf(HasSubstr(gpu + "0 -> declared, absent, on physical GPU 0\n"),
                                HasSubstr(gpu + "3 -> declared, absent, on physical GPU 1\n"),
                                HasSubstr("tower1/fc0/MatMul: (MatMul): " + gpu + "0\n"),
                                HasSubstr("\nphysical GPU 0 (GPU:0 GPU:1): planned peak ")));
  const nlohmann::json devices = report()["devices"], physical = report()["physical_gpus"];
  ASSERT_EQ(devices.size(), 5u);
  // A replica per physical GPU: GPU:1's is GPU:0's.
  const int variables[] = {0, 4, 4, 0, 4}, bytes[] = {0, 248, 0, 0, 248};
  for (std::size_t d = 1; d < 5; ++d) {
    EXPECT_EQ(devices[d]["variables"], variables[d]) << d;
    EXPECT_EQ(devices[d]["variable_bytes"], bytes[d]) << d;
  }
  ASSERT_EQ(physical.size(), 2u);
  for (const std::size_t p : {0, 1}) {
    const nlohmann::json &one = devices[1 + 2 * p], &other = devices[2 + 2 * p];
    EXPECT_EQ(physical[p]["physical_gpu"], p);
    EXPECT_EQ(physical[p]["devices"], (nlohmann::json{one["device"], other["device"]}));
    EXPECT_EQ(physical[p]["peak_bytes"],
              one["peak_bytes"].get<int>() + other["peak_bytes"].get<int>());
  }
}

TEST_F(TrainTest, ExplainsNodesOnGpusThatDoNotExist) {
  for (const std::string logical : {"--logical_gpus=1", "--logical_gpus=4"}) {
    const Result result = run({"--explain=tower1/fc0/MatMul", "--devices=gpu:5,gpu:2", logical,
                               "--json=" + json_.string()},
                              unreadable_recipe());
    EXPECT_EQ(result.code, 0) << result.error;
    const std::string gpu = "/job:localhost/replica:0/task:0/device:GPU:";
    EXPECT_THAT(result.out, HasSubstr(gpu + "2"));
    EXPECT_EQ(report()["requested"], gpu + "2");
    EXPECT_EQ(report()["device"], gpu + "2");
    EXPECT_EQ(report()["candidates"].size(), 7u) << "a CPU and GPUs 0 to 5";
  }
}

TEST_F(TrainTest, ExplainsANodeWithoutTraining) {
  const Result result =
      run({"--explain=tower1/fc0/MatMul", "--json=" + json_.string()}, unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  const std::string cpu = "/job:localhost/replica:0/task:0/device:CPU:";
  EXPECT_THAT(result.out, AllOf(HasSubstr("tower1/fc0/MatMul"), HasSubstr(cpu + "1")));
  const nlohmann::json json = report();
  EXPECT_EQ(json["node"], "tower1/fc0/MatMul");
  EXPECT_EQ(json["type"], "MatMul");
  EXPECT_EQ(json["requested"], cpu + "1");
  EXPECT_EQ(json["device"], cpu + "1");
  ASSERT_FALSE(json["scopes"].empty());
  EXPECT_GT(json["scopes"][0]["line"], 0);
  ASSERT_EQ(json["candidates"].size(), 2u);
  EXPECT_EQ(json["candidates"][0]["device"], cpu + "0");
  EXPECT_EQ(json["candidates"][0]["kept"], false);
  EXPECT_EQ(json["candidates"][1]["kept"], true);
  EXPECT_TRUE(json["colocation"].is_array());
  EXPECT_TRUE(json["load"].is_object());
  EXPECT_TRUE(json["fallback"].is_null());
}

TEST_F(TrainTest, ADryRunMayExplainToo) {
  const Result result = run({"--dry_run", "--devices=gpu:2", "--explain=tower-pred-1/fc0/MatMul",
                             "--json=" + json_.string()},
                            unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(report()["device"], "/job:localhost/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(report()["devices"].size(), 3u);
}

TEST_F(TrainTest, ExplainsTheLoadsThatASetterSaw) {
  EXPECT_EQ(run({"--explain=fc1/W", "--trainer=parameter_server", "--json=" + json_.string()}).code,
            0);
  const nlohmann::json load = report()["load"];
  ASSERT_EQ(load.size(), 2u);
  std::int64_t elements = 0;
  for (const auto& [device, n] : load.items()) elements += std::int64_t{n};
  EXPECT_EQ(elements, 4 * 5 + 5);  // fc0/W and fc0/b came before
}

TEST(Train, SuggestsTheNearestNodeToExplain) {
  const Result result = run({"--explain=tower1/fc0/MatMull"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("did you mean 'tower1/fc0/MatMul'"));
}

TEST_F(TrainTest, TracesTheSecondStepAndTrainsOn) {
  const std::string trace = path(".trace");
  EXPECT_EQ(run({"--trace_file=" + trace, "--json=" + json_.string()}).code, 0);
  EXPECT_EQ(report()["steps"], 8);
  const std::vector<std::byte> bytes = local_file_system().read(trace);
  const auto events = nlohmann::json::parse(
      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))["traceEvents"];
  EXPECT_GT(events.size(), 20u);
  std::filesystem::remove(trace);
  EXPECT_EQ(run({"--max_steps=1", "--trace_file=" + trace}).code, 0);
  EXPECT_TRUE(std::filesystem::remove(trace));
  EXPECT_EQ(run({"--trace_file=/no/such/folder/t.json"}).code, 1);
}

TEST_F(TrainTest, RefusesOneFileForTwoPurposes) {
  const std::string other = json_.parent_path() / "." / json_.filename();
  for (const char* flag : {"--trace_file=", "--save_checkpoint="}) {
    const Result result = run({"--json=" + json_.string(), flag + other});
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.error, AllOf(HasSubstr("--json=" + json_.string() + " and " + flag + other),
                                    HasSubstr("would overwrite each other")));
    EXPECT_FALSE(std::filesystem::exists(json_));
  }
}

TEST_F(TrainTest, TrainsInOrderAndFreeAndSaysWhich) {
  const std::string json = "--json=" + json_.string();
  for (const std::string async : {"ordered", "free"}) {
    const Result result = run({"--trainer=async", "--async=" + async, "--devices=cpu:2", json});
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_THAT(result.out, AllOf(HasSubstr("program: async, " + async + " on CPU:0 CPU:1"),
                                  HasSubstr("step 8/8")));
    EXPECT_EQ(report()["trainer"], "async");
    EXPECT_EQ(report()["async"], async);
    EXPECT_TRUE(report()["allreduce"].is_null());
    EXPECT_EQ(report()["steps"], 8);
    EXPECT_EQ(report()["epochs"], 2);
    EXPECT_EQ(report()["replicas_equal"], true);
  }
}

TEST_F(TrainTest, InspectsAndTracesTowersThatRunFree) {
  const std::vector<std::string> free{"--trainer=async", "--async=free"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), free.begin(), free.end());
    return more;
  };
  const Result dry = run(with({"--dry_run", "--devices=cpu:3"}), unreadable_recipe());
  EXPECT_EQ(dry.code, 0) << dry.error;
  EXPECT_THAT(dry.out, HasSubstr("tower2/fc0/MatMul: (MatMul): "
                                 "/job:localhost/replica:0/task:0/device:CPU:2\n"));
  const Result explained = run(with({"--explain=tower1/fc0/MatMul"}), unreadable_recipe());
  EXPECT_EQ(explained.code, 0) << explained.error;
  EXPECT_THAT(explained.out, HasSubstr("device:CPU:1"));
  const std::string trace = path(".trace");
  EXPECT_EQ(run(with({"--trace_file=" + trace})).code, 0);
  EXPECT_TRUE(std::filesystem::remove(trace));
}

// 3 steps, then on to 8: as 8 without a stop.
TEST_F(TrainTest, GoesOnFromACheckpointToTheSameBits) {
  const std::string checkpoint = path(".checkpoint"), json = "--json=" + json_.string();
  EXPECT_EQ(run({json}).code, 0);
  const std::string hash = report()["state_hash"];
  EXPECT_EQ(run({"--max_steps=3", "--save_checkpoint=" + checkpoint, json}).code, 0);
  EXPECT_NE(report()["state_hash"], hash);
  const Result result = run({"--restore_checkpoint=" + checkpoint, json});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("after step 3; 5 steps are left"), HasSubstr("step 8/8")));
  EXPECT_EQ(report()["state_hash"], hash);
  EXPECT_EQ(report()["steps"], 8);
  EXPECT_EQ(report()["epochs"], 2);
  std::filesystem::remove_all(checkpoint);
}

TEST_F(TrainTest, RestoresWhatOtherTrainersAndDevicesSaved) {
  const std::string checkpoint = path(".checkpoint"), json = "--json=" + json_.string();
  EXPECT_EQ(run({"--devices=cpu:4", "--batch_size=4", "--max_steps=3",
                 "--save_checkpoint=" + checkpoint, json})
                .code,
            0);
  const std::string hash = report()["state_hash"];
  for (const char* devices : {"--devices=cpu:1", "--devices=cpu:2"})
    for (const char* trainer : {"--trainer=replicated", "--trainer=parameter_server"}) {
      const Result result = run({devices, trainer, "--batch_size=8", "--max_steps=3",
                                 "--restore_checkpoint=" + checkpoint, json});
      EXPECT_EQ(result.code, 0) << result.error;
      EXPECT_THAT(result.out, HasSubstr("nothing is left to train"));
      EXPECT_EQ(report()["state_hash"], hash) << devices << trainer;
      EXPECT_EQ(report()["steps"], 3);
      EXPECT_EQ(report()["replicas_equal"], true);
      EXPECT_TRUE(report()["loss"].is_null());
    }
  std::filesystem::remove_all(checkpoint);
}

TEST(Train, RefusesCheckpointsBeforeTheDataAreRead) {
  const Result save = run({"--save_checkpoint=/no/such/folder/c"}, unreadable_recipe());
  EXPECT_EQ(save.code, 1);
  EXPECT_THAT(save.error, HasSubstr("/no/such/folder"));
  const Result restore = run({"--restore_checkpoint=/no/such/checkpoint"}, unreadable_recipe());
  EXPECT_EQ(restore.code, 1);
  EXPECT_THAT(restore.error, HasSubstr("there is no checkpoint /no/such/checkpoint"));
}

TEST(Train, PrintsPlacementAndTheBalanceOfVariables) {
  const Result result =
      run({"--log_device_placement", "--max_steps=1", "--trainer=parameter_server"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("Device mapping: no known devices.\n"),
                                HasSubstr("fc0/W: (Variable): /job:localhost/replica:0/task:0/"
                                          "device:CPU:0\n"),
                                HasSubstr("imbalance")));
}

TEST(Train, PrintsHelpAndTrainsNothing) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--batch_size"), Not(HasSubstr("--data_dir"))));
}

TEST(Train, ExitsWith2ForMistakesOnTheCommandLineInOneLine) {
  for (const char* flag : {"--batchsize=3", "--devices=gpu:2", "--learning_rate=nan",
                           "--trainer=simple", "--data_dir=/d", "--allreduce=colocate",
                           "--epochs=x", "--gradient_repacking=4", "--bucket_mb=x"}) {
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

}  // namespace train_test
}  // namespace belfry
