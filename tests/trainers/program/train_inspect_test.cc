// Dry runs, explanations and traces of training programs.
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/tests/trainers/util/busy_texts.h"

namespace belfry {
namespace train_inspect_test {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(TrainTest, PlansADryRunForGpusThatDoNotExistWithoutReadingData) {
  const TrainResult result =
      run_train({"--dry_run", "--devices=gpu:4", "--json=" + json_.string()}, unreadable_recipe());
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

TEST_F(TrainTest, SummarisesTheModelWithoutReadingData) {
  const TrainResult result =
      run_train({"--summary", "--devices=gpu:4", "--json=" + json_.string()}, unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("multiply-adds"), HasSubstr("\nfc0 ")));
  EXPECT_EQ(report()["parameters"], 4 * 5 + 5 + 5 + 1);
  EXPECT_EQ(report()["multiply_adds"], report()["batch_size"].get<int>() * (4 * 5 + 5));
  EXPECT_EQ(run_train({"--summary", "--check_equivalence=2"}).code, 2);
}

TEST_F(TrainTest, SaysInADryRunWhatTheNumberOfDevicesChanges) {
  const auto dry = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--dry_run", "--json=" + json_.string()});
    const TrainResult result = run_train(flags);
    EXPECT_EQ(result.code, 0) << result.error;
    return result.out;
  };
  EXPECT_THAT(dry({"--devices=cpu:2", "--shards=4", "--global_batch_size=16"}),
              AllOf(HasSubstr("the global batch of 16 has 4 shards\n"),
                    HasSubstr("up to 4 devices give the same bits\n")));
  EXPECT_EQ(report()["k_independent"], true);
  EXPECT_TRUE(report()["k_dependent_because"].is_null());
  EXPECT_THAT(dry({"--devices=cpu:3", "--global_batch_size=18"}),
              HasSubstr("the number of devices changes bits: 3 devices: not a power of two\n"));
  EXPECT_EQ(report()["k_dependent_because"], "3 devices: not a power of two");
  EXPECT_THAT(dry({"--devices=cpu:1", "--global_batch_size=16"}),
              AllOf(HasSubstr("the global batch of 16 has 4 shards\n"),
                    HasSubstr("up to 4 devices give the same bits\n"),
                    HasSubstr("--shards=8 gives the same bits on 1, 2, 4, ... up to 8 devices; ")));
  EXPECT_EQ(report()["k_independent"], false);
  EXPECT_EQ(report()["k_dependent_because"], "more than 4 devices raise the default of 4 shards");
  EXPECT_THAT(dry({"--devices=cpu:1", "--global_batch_size=16", "--shards=1"}),
              HasSubstr("no more devices than one can share the batch and its shards alike\n"));
  EXPECT_EQ(report()["k_independent"], true);
  EXPECT_THAT(dry({"--devices=cpu:8", "--global_batch_size=16"}),
              AllOf(HasSubstr("the default of 4 shards was raised to 8, one per device\n"),
                    HasSubstr("--shards=8 gives the same bits")));
  for (const char* flag : {"--allreduce=ring", "--shards=2", "--global_batch_size=12"})
    EXPECT_THAT(dry({"--devices=cpu:2", flag}), testing::Not(HasSubstr("gives the same bits")))
        << flag;
}

TEST_F(TrainTest, PromisesNoEqualBitsInADryRunThatDoesNotKnowTheLastBatch) {
  for (const std::string uneven : {"pad", "weight"}) {
    const TrainResult result =
        run_train({"--dry_run", "--devices=cpu:2", "--shards=8", "--global_batch_size=16",
                   "--uneven=" + uneven, "--json=" + json_.string()});
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(report()["k_independent"], false);
    EXPECT_EQ(report()["k_dependent_because"],
              "uneven=" + uneven +
                  " may make a smaller last batch, which a dry run does not know, " +
                  "as it reads no data");
    EXPECT_THAT(result.out, testing::Not(HasSubstr("same bits")));
  }
}

TEST_F(TrainTest, SaysOfOneDeviceThatOthersWouldNotCombineCanonically) {
  const auto because = [&](const std::string& devices, const std::string& strategy) {
    const TrainResult result =
        run_train({"--dry_run", "--shards=8", "--global_batch_size=16", "--devices=" + devices,
                   "--allreduce=" + strategy, "--json=" + json_.string()});
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(report()["k_independent"], report()["k_dependent_because"].is_null());
    return report()["k_independent"] ? "" : report()["k_dependent_because"].get<std::string>();
  };
  for (const std::string devices : {"cpu:1", "cpu:2"}) {
    for (const std::string strategy : {"collective", "naive", "shuffle", "auto"})
      EXPECT_EQ(because(devices, strategy), "") << devices << " " << strategy;
    for (const std::string strategy : {"ring", "collective:64k:ring", "ring#2"})
      EXPECT_EQ(because(devices, strategy),
                "the strategy " + strategy + " does not add in the order of the canonical sum")
          << devices;
  }
}

TEST_F(TrainTest, WarnsWhereARunGoesOnWithAnotherNumberOfShards) {
  const std::string saved = path(".checkpoint");
  const auto run = [&](std::vector<std::string> flags) {
    const TrainResult result = run_train(flags);
    EXPECT_EQ(result.code, 0) << result.error;
    return result.error;
  };
  run({"--devices=cpu:2", "--shards=4", "--max_steps=2", "--run_dir=" + saved});
  EXPECT_THAT(run({"--devices=cpu:1", "--batch_size=16", "--shards=2", "--max_steps=3",
                   "--resume=" + saved}),
              HasSubstr("the number of shards (--shards) was 4 and is now 2"));
  EXPECT_THAT(run({"--devices=cpu:1", "--batch_size=16", "--shards=4", "--max_steps=3",
                   "--resume=" + saved}),
              testing::Not(HasSubstr("shards")));
  std::filesystem::remove_all(saved);
}

TEST(Train, SaysThatPlanningForManyDevicesGoesOn) {
  EXPECT_THAT(busy_texts([] {
                run_train({"--dry_run", "--devices=cpu:3"});
              }),
              testing::ElementsAre("planning for 3 devices"));
}

TEST_F(TrainTest, PlansLogicalGpusThatShareTheMemoryOfAPhysicalOne) {
  const TrainResult result = run_train({"--dry_run", "--devices=/gpu:3,/gpu:0,/gpu:1",
                                        "--logical_gpus=2", "--json=" + json_.string()},
                                       unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  const std::string gpu = "/job:localhost/replica:0/task:0/device:GPU:";
  EXPECT_THAT(result.out, AllOf(HasSubstr(gpu + "0 -> declared, absent, on physical GPU 0\n"),
                                HasSubstr(gpu + "3 -> declared, absent, on physical GPU 1\n"),
                                HasSubstr("tower1/fc0/MatMul: (MatMul): " + gpu + "0\n"),
                                HasSubstr("\nphysical GPU 0 (GPU:0 GPU:1): planned peak ")));
  const nlohmann::json devices = report()["devices"], physical = report()["physical_gpus"];
  ASSERT_EQ(devices.size(), 5u);
  // Each physical GPU has one replica: GPU:1 shares that of GPU:0.
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
    const TrainResult result = run_train({"--explain=tower1/fc0/MatMul", "--devices=gpu:5,gpu:2",
                                          logical, "--json=" + json_.string()},
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
  const TrainResult result =
      run_train({"--explain=tower1/fc0/MatMul", "--json=" + json_.string()}, unreadable_recipe());
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

TEST_F(TrainTest, ExplainsHowANodeIsDividedIntoShards) {
  const auto explain = [&](const std::string& node, const char* more = "--on_nonfinite=stop") {
    const TrainResult result =
        run_train({"--explain=" + node, "--devices=cpu:2", "--global_batch_size=16", "--shards=8",
                   "--json=" + json_.string(), more},
                  unreadable_recipe());
    EXPECT_EQ(result.code, 0) << result.error;
    return result.out;
  };
  EXPECT_THAT(explain("tower1/fc0/MatMul"),
              HasSubstr("  shards of the device: 4; runs once for each\n"
                        "    f64[8,5]: 1 row of each sample\n"));
  EXPECT_TRUE(report()["shards"]["copies"].empty());
  EXPECT_THAT(explain("tower0/gradients/fc0/MatMul_grad/MatMulTransposeA"),
              HasSubstr("    f64[4,5]: partial sums\n    copy tower0/gradients/fc0/MatMul_grad/"
                        "MatMulTransposeA/sum, 160 bytes, for check/AllFinite, "
                        "AllReduceGrads/AllReduce/update\n"));
  // Without a check of the sum nothing else reads it.
  EXPECT_THAT(
      explain("tower0/gradients/fc0/MatMul_grad/MatMulTransposeA", "--on_nonfinite=continue"),
      HasSubstr("    f64[4,5]: partial sums, added up by AllReduceGrads/AllReduce/update\n"));
  EXPECT_EQ(report()["shards"]["outputs"][0]["added_by"].size(), 1u);
  EXPECT_TRUE(report()["fused_into"].is_null());
  EXPECT_THAT(explain("AllReduceGrads/AllReduce"),
              HasSubstr("  fused with others into: FusedUpdate AllReduceGrads/AllReduce/update\n"
                        "  shards of the device: 4; runs once\n"));
  EXPECT_EQ(report()["fused_into"], "FusedUpdate AllReduceGrads/AllReduce/update");
  EXPECT_THAT(explain("tower0/ReduceMean"),
              HasSubstr("    f64[]: partial sums\n"
                        "    copy tower0/ReduceMean/sum, 8 bytes, for tower0/"));
  EXPECT_EQ(report()["shards"]["copies"][0]["bytes"], 8);
  EXPECT_THAT(explain("train_op"), HasSubstr("  shards of the device: 4; runs once\n"));
  EXPECT_EQ(report()["shards"]["runs"], 1);
  EXPECT_THAT(explain("tower-pred-1/fc0/MatMul"), testing::Not(HasSubstr("shards of")));
  EXPECT_TRUE(report()["shards"].is_null());
}

TEST_F(TrainTest, ADryRunMayExplainToo) {
  const TrainResult result =
      run_train({"--dry_run", "--devices=gpu:2", "--explain=tower-pred-1/fc0/MatMul",
                 "--json=" + json_.string()},
                unreadable_recipe());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(report()["device"], "/job:localhost/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(report()["devices"].size(), 3u);
}

TEST_F(TrainTest, ExplainsTheLoadsThatASetterSaw) {
  EXPECT_EQ(
      run_train({"--explain=fc1/W", "--trainer=parameter_server", "--json=" + json_.string()}).code,
      0);
  const nlohmann::json load = report()["load"];
  ASSERT_EQ(load.size(), 2u);
  std::int64_t elements = 0;
  for (const auto& [device, n] : load.items()) elements += std::int64_t{n};
  EXPECT_EQ(elements, 4 * 5 + 5);  // fc0/W and fc0/b were placed before
}

TEST(Train, SuggestsTheNearestNodeToExplain) {
  const TrainResult result = run_train({"--explain=tower1/fc0/MatMull"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.error, HasSubstr("did you mean 'tower1/fc0/MatMul'"));
}

TEST_F(TrainTest, TracesTheSecondStepAndTrainsOn) {
  const std::string trace = path(".trace");
  EXPECT_EQ(run_train({"--trace_file=" + trace, "--json=" + json_.string()}).code, 0);
  EXPECT_EQ(report()["steps"], 8);
  const std::vector<std::byte> bytes = local_file_system().read(trace);
  const auto events = nlohmann::json::parse(
      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()))["traceEvents"];
  EXPECT_GT(events.size(), 20u);
  std::filesystem::remove(trace);
  EXPECT_EQ(run_train({"--max_steps=1", "--trace_file=" + trace}).code, 0);
  EXPECT_TRUE(std::filesystem::remove(trace));
  EXPECT_EQ(run_train({"--trace_file=/no/such/folder/t.json"}).code, 2);
}

TEST_F(TrainTest, InspectsAndTracesTowersThatRunFree) {
  const std::vector<std::string> free{"--trainer=async", "--async=free"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), free.begin(), free.end());
    return more;
  };
  const TrainResult dry = run_train(with({"--dry_run", "--devices=cpu:3"}), unreadable_recipe());
  EXPECT_EQ(dry.code, 0) << dry.error;
  EXPECT_THAT(dry.out, HasSubstr("tower2/fc0/MatMul: (MatMul): "
                                 "/job:localhost/replica:0/task:0/device:CPU:2\n"));
  const TrainResult explained =
      run_train(with({"--explain=tower1/fc0/MatMul"}), unreadable_recipe());
  EXPECT_EQ(explained.code, 0) << explained.error;
  EXPECT_THAT(explained.out, HasSubstr("device:CPU:1"));
  const std::string trace = path(".trace");
  EXPECT_EQ(run_train(with({"--trace_file=" + trace})).code, 0);
  EXPECT_TRUE(std::filesystem::remove(trace));
}

TEST(Train, PrintsPlacementAndTheBalanceOfVariables) {
  const TrainResult result =
      run_train({"--log_device_placement", "--max_steps=1", "--trainer=parameter_server"});
  EXPECT_THAT(result.out, AllOf(HasSubstr("Device mapping: no known devices.\n"),
                                HasSubstr("fc0/W: (Variable): /job:localhost/replica:0/task:0/"
                                          "device:CPU:0\n"),
                                HasSubstr("imbalance")));
}

}  // namespace train_inspect_test
}  // namespace belfry
