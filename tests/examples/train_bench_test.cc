// Runs the benchmark program train_bench as people run it.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"
#include "belfry/tests/support/sanitizers.h"
#include "belfry/tests/support/two_devices.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace train_bench_test {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

std::string take(const std::string& path) {
  const std::vector<std::byte> bytes = local_file_system().read(path);
  local_file_system().remove(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What auto predicts for.
const std::string kLinks = cat("--links=", BELFRY_SOURCE_DIR, "/docs/links/slow_links.json");

// On two devices unless the arguments name others.
Finished bench(std::vector<std::string> arguments) {
  test::name_two_devices(arguments);
  return run_program(cat(BELFRY_BIN_DIR, "/train_bench"), arguments);
}

// The error of a wrong command line.
std::string refusal(const std::vector<std::string>& arguments) {
  const Finished done = bench(arguments);
  EXPECT_EQ(done.status, 2);
  EXPECT_EQ(done.output, "");
  return done.errors;
}

TEST(TrainBench, PrintsMemoryFirstThenWhatTfCnnBenchmarksPrints) {
  const std::string json = temporary_path(".json");
  const Finished done =
      bench({"--model=resnet20", "--image_size=8", "--batch_size=2", "--devices=cpu:4",
             "--num_batches=4", "--num_warmup_batches=1", "--display_every=2", "--json=" + json});
  ASSERT_EQ(done.status, 0) << done.errors;
  const std::string speed =
      "images/sec: [0-9.]+ \\+/- [0-9.]+ \\(jitter = [0-9.]+\\)\t[0-9]+\\.[0-9]{3}\n";
  const std::regex expected(
      "model: resnet20 on [^\n]*\nbatch: [^\n]*\nmemory: this machine has [^\n]*\n"
      "memory: replicated collective needs [^\n]* MiB[^\n]*CPU:0 [^\n]*CPU:3 [^\n]*\n"
      "Running warm up\nDone warm up\nStep\tImg/sec\tloss\n1\t" +
      speed + "2\t" + speed + "4\t" + speed +
      "-{64}\ntotal images/sec: [0-9]+\\.[0-9]{2}\n-{64}\n"
      "images/sec per device: [0-9]+\\.[0-9]{2}\nparams_hash [0-9a-f]{16}, state_hash "
      "[0-9a-f]{16}\n");
  EXPECT_TRUE(std::regex_match(done.output, expected)) << done.output;
  const auto result = nlohmann::json::parse(take(json));
  EXPECT_EQ(result["model"], "resnet20");
  EXPECT_EQ(result["strategy"], "collective");
  EXPECT_EQ(result["canonical"], true);
  EXPECT_EQ(result["devices"], 4);
  EXPECT_EQ(result["batch_size"], 2);
  EXPECT_GT(result["examples_per_second"], 0);
  EXPECT_EQ(result["ratio"], 1);
  EXPECT_EQ(result["ratio_spread"], 0);
}

// Plans do not count the code of kernels, and the memory of planning itself.
TEST(TrainBench, PlansTheMemoryThatItTakes) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const std::string json = temporary_path(".json");
  const Finished done = bench({"--model=resnet20", "--batch_size=128", "--devices=cpu:2",
                               "--num_batches=1", "--num_warmup_batches=1", "--json=" + json});
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto result = nlohmann::json::parse(take(json));
  const double planned = result["planned_bytes"], peak = result["peak_rss_bytes"];
  const double taken = peak - result["rss_before_plan_bytes"].get<double>();
  EXPECT_GT(planned, 100 << 20);
  EXPECT_NEAR(taken, planned, std::max(0.05 * planned, 16.0 * (1 << 20)));
  EXPECT_GT(result["startup_seconds"], 0);
}

TEST(TrainBench, WritesWhatPlannedMemoryIsForInADryRun) {
  const std::string file = temporary_path(".json");
  const Finished done = bench({"--model=resnet50", "--batch_size=16", "--devices=cpu:2",
                               "--dry_run", "--memory_report=" + file});
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto report = nlohmann::json::parse(take(file));
  const auto& kinds = report["devices"][0]["kinds"];
  EXPECT_EQ(kinds["weights"], 102440608) << "25.6 million numbers, and batch norm's moments";
  EXPECT_GE(kinds["optimizer"], 102228128) << "momentum";
  EXPECT_GT(kinds["activations"], 1 << 29);
  EXPECT_LE(kinds["gradients"], 102228128 + (1 << 20));
  const auto& largest = report["largest_tensors"];
  ASSERT_EQ(largest.size(), 10u);
  EXPECT_THAT(largest[0]["kind"].get<std::string>(), AnyOf("activations", "workspace"));
  EXPECT_GE(largest[0]["bytes"], largest[9]["bytes"]);
}

// Products of few rows are slow, so the MLP has fewer shards than some numbers of devices need.
TEST(TrainBench, SaysInADryRunWhichShardsGiveEqualBits) {
  const Finished mlp =
      bench({"--model=mlp", "--global_batch_size=256", "--devices=cpu:2", "--dry_run"});
  EXPECT_THAT(mlp.output, AllOf(HasSubstr("the global batch of 256 has 4 shards\n"),
                                HasSubstr("1, 2, 4, ... up to 4 devices give the same bits\n"),
                                HasSubstr("--shards=8 gives the same bits on 1, 2, 4, ... up to 8 "
                                          "devices; fewer are faster for this model\n")));
  const Finished both =
      bench({"--model=mlp", "--strategies=naive,ring", "--dry_run", "--shards=2"});
  EXPECT_THAT(both.output,
              AllOf(HasSubstr("replicated naive: the global batch of 128 has 2 shards\n"),
                    HasSubstr("the number of devices changes bits: the strategy ring"),
                    Not(HasSubstr("--shards="))));
}

TEST(TrainBench, ComparesAllStrategiesAndListsThoseThatRefuse) {
  const std::string json = temporary_path(".json"), plot = temporary_path(".svg");
  const Finished done = bench({"--model=mlp", "--image_size=6", "--batch_size=2", "--devices=cpu:3",
                               "--num_batches=3", "--num_warmup_batches=1", "--strategies=all",
                               "--repetitions=2", "--json=" + json, "--plot=" + plot, kLinks});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("hierarchical: refused: "));
  EXPECT_THAT(done.output, HasSubstr("round 2 of 2: replicated naive: "));
  const auto list = nlohmann::json::parse(take(json));
  std::map<std::string, nlohmann::json> results;
  for (const auto& result : list) results[result["strategy"]] = result;
  for (const char* strategy : {"collective", "naive", "colocate"}) {
    ASSERT_TRUE(results.contains(strategy)) << strategy;
    const auto& result = results[strategy];
    EXPECT_EQ(result.size(), 38u);
    EXPECT_EQ(result["devices"], 3);
    EXPECT_EQ(result["shards"], 3);
    EXPECT_EQ(result["canonical"], true) << strategy;
    EXPECT_EQ(result["params_hash"], results["collective"]["params_hash"]) << strategy;
    EXPECT_EQ(result["state_hash"], results["collective"]["state_hash"]) << strategy;
    EXPECT_GT(result["ratio"], 0) << strategy;
  }
  ASSERT_TRUE(results.contains("auto"));
  EXPECT_EQ(results["auto"]["canonical"], true);
  EXPECT_TRUE(results.contains(results["auto"]["resolved"])) << results["auto"];
  EXPECT_EQ(results["auto"]["state_hash"], results["collective"]["state_hash"]);
  EXPECT_EQ(list[0]["strategy"], "collective");
  EXPECT_EQ(list[0]["ratio"], 1);
  EXPECT_FALSE(results.contains("hierarchical"));
  EXPECT_THAT(take(plot), AllOf(HasSubstr("<svg "), HasSubstr(">naive<")));
  EXPECT_THAT(take(plot.substr(0, plot.size() - 4) + ".gp"), HasSubstr("\nnaive\t"));
}

TEST(TrainBench, ComparesListedStrategiesWithTheFirst) {
  const std::string json = temporary_path(".json");
  const Finished done = bench({"--model=mlp", "--image_size=6", "--batch_size=2", "--num_batches=2",
                               "--num_warmup_batches=0", "--strategies=naive,colocate",
                               "--repetitions=1", "--json=" + json});
  ASSERT_EQ(done.status, 0) << done.errors;
  const auto list = nlohmann::json::parse(take(json));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["strategy"], "naive");
  EXPECT_EQ(list[0]["ratio"], 1);
  EXPECT_EQ(list[1]["strategy"], "colocate");
}

TEST(TrainBench, ComparesPackedGradientsWithPackedOnesOnly) {
  for (const std::string packing : {"--gradient_repacking=2", "--small_tensors_kb=4"}) {
    const auto compare = [&](const std::string& strategies) {
      return bench({"--model=mlp", "--image_size=6", "--batch_size=2", "--num_batches=1",
                    "--num_warmup_batches=0", "--repetitions=1", packing, kLinks,
                    "--strategies=" + strategies});
    };
    const std::string reason =
        "the trainer parameter_server lays no gradients end to end; leave out gradient_repacking "
        "and small_tensors_kb";
    const Finished listed = compare("auto,colocate");
    EXPECT_EQ(listed.status, 2) << listed.output;
    EXPECT_THAT(listed.errors, HasSubstr(reason));
    const Finished all = compare("all");
    EXPECT_EQ(all.status, 0) << all.errors;
    EXPECT_THAT(all.output, AllOf(HasSubstr("colocate: refused: " + reason),
                                  HasSubstr("round 1 of 1: replicated naive")));
  }
}

TEST(TrainBench, ComparesWhatAutoChoosesAndPrintsWhyOnce) {
  const std::string json = temporary_path(".json");
  const std::vector<std::string> flags{"--model=mlp",           "--image_size=6", "--batch_size=2",
                                       "--num_batches=2",       "--json=" + json, kLinks,
                                       "--num_warmup_batches=0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return bench(more);
  };
  const Finished compared = with({"--strategies=auto,naive", "--bucket_mb=0", "--repetitions=2"});
  ASSERT_EQ(compared.status, 0) << compared.errors;
  const std::string table = "auto: predicted for 6 gradients on CPU:0 CPU:1\n";
  const std::size_t at = compared.output.find(table);
  ASSERT_NE(at, std::string::npos) << compared.output;
  EXPECT_EQ(compared.output.find("auto: predicted", at + 1), std::string::npos);
  auto list = nlohmann::json::parse(take(json));
  EXPECT_EQ(list[0]["strategy"], "auto");
  EXPECT_EQ(list[0]["bucket_mb"], 0);
  EXPECT_EQ(list[0]["state_hash"], list[1]["state_hash"]);
  const Finished alone = with({"--allreduce=auto"});
  ASSERT_EQ(alone.status, 0) << alone.errors;
  EXPECT_THAT(alone.output, AllOf(HasSubstr(table), HasSubstr("memory: replicated auto needs")));
  EXPECT_EQ(nlohmann::json::parse(take(json))["strategy"], "auto");
}

TEST(TrainBench, SaysHowDevicesShareABatch) {
  const std::string json = temporary_path(".json");
  const Finished done = bench({"--model=mlp", "--image_size=6", "--batch_size=4", "--devices=cpu:3",
                               "--num_batches=1", "--tower_weights=2,1,1", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("batch: 6 + 3 + 3 per device, 12 in all"));
  EXPECT_EQ(nlohmann::json::parse(take(json))["tower_weights"], (nlohmann::json{2, 1, 1}));
}

TEST(TrainBench, RefusesWhatTheMachineHasNoMemoryFor) {
  const Finished done = bench({"--model=resnet50", "--devices=cpu:8", "--batch_size=100000"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.output, HasSubstr("memory: replicated collective needs "));
  EXPECT_THAT(done.output, Not(HasSubstr("warm up")));
  EXPECT_THAT(done.errors, AllOf(HasSubstr("TiB of memory, but this machine has"),
                                 HasSubstr("a smaller batch")));
}

// The samples of all batches are made before the first step.
TEST(TrainBench, RefusesMoreBatchesPerStepThanMemoryHolds) {
  for (const char* const other : {"--num_batches=1", "--dry_run"}) {
    const Finished done = bench(
        {"--model=resnet50", "--batch_size=8", "--gradient_accumulation_steps=1000000", other});
    EXPECT_EQ(done.status, 2) << other;
    EXPECT_THAT(done.errors, AllOf(HasSubstr("TiB of memory, but this machine has"),
                                   HasSubstr("fewer devices or batches per step")));
  }
}

TEST(TrainBench, PlansForGpusThatAreNotThere) {
  const Finished done = bench({"--model=resnet50", "--devices=gpu:8", "--dry_run"});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, HasSubstr("GPU:7 "));
  EXPECT_THAT(done.output, Not(HasSubstr("warm up")));
  const Finished shared =
      bench({"--model=mlp", "--devices=gpu:2", "--logical_gpus=2", "--dry_run"});
  EXPECT_EQ(shared.status, 0) << shared.errors;
  EXPECT_NE(shared.output, bench({"--model=mlp", "--devices=gpu:2", "--dry_run"}).output)
      << "two replicas in one storage";
}

TEST(TrainBench, PlansOneOfManyProcesses) {
  const std::string json = temporary_path(".json");
  const Finished done =
      bench({"--model=mlp", "--image_size=8", "--devices=gpu:8", "--processes=128",
             "--processes_per_host=8", "--batch_size=2", "--dry_run", "--json=" + json});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, AllOf(HasSubstr("GPU:7 of each of 128 processes"),
                                 HasSubstr("2048 in all"), HasSubstr("8 of them on its host")));
  const auto plan = nlohmann::json::parse(take(json));
  EXPECT_EQ(plan["global_batch_size"], 2048);
  EXPECT_EQ(plan["devices"].size(), 9u) << "and the host";
  EXPECT_EQ(plan["devices"][8]["tower"], 7);
  const auto& between = plan["between_hosts"];
  EXPECT_EQ(between["links"].size(), 120u);
  EXPECT_EQ(plan["with_processes_of_host"]["links"].size(), 7u);
  std::int64_t sent = 0;
  for (const auto& link : between["links"]) sent += link["sent_bytes"].get<std::int64_t>();
  EXPECT_EQ(between["sent_bytes"], sent);
}

TEST(TrainBench, ChecksTheEquivalenceOfAllModes) {
  if (kSanitized) GTEST_SKIP() << "too slow under sanitizers; CheckEquivalence does it in small";
  const std::string json = temporary_path(".json");
  const Finished done =
      bench({"--model=mlp", "--batch_size=2", "--check_equivalence=2", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  const auto rows = nlohmann::json::parse(take(json));
  bool packed = false;
  for (const auto& row : rows) {
    EXPECT_TRUE(row["max_ulp"] == 0 || row["canonical"] == false) << row;
    packed = packed || row["mode"] == "replicated naive packed:2";
  }
  EXPECT_TRUE(packed);
}

TEST(TrainBench, ListsOnOneDeviceWhatNeedsSeveral) {
  const std::string json = temporary_path(".json");
  const Finished done = bench({"--model=mlp", "--devices=cpu:1", "--batch_size=8",
                               "--strategies=hierarchical,nccl", "--json=" + json});
  EXPECT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output,
              AllOf(HasSubstr("hierarchical: refused: "), HasSubstr("nccl: refused: ")));
  EXPECT_EQ(nlohmann::json::parse(take(json)), nlohmann::json::array());
}

TEST(TrainBench, TakesWeightDecayClippingAndSmoothedLabels) {
  const std::string json = temporary_path(".json");
  std::set<std::string> hashes;
  for (const char* flag :
       {"--seed=1", "--weight_decay=0.25", "--clip_norm=0.125", "--label_smoothing=0.5"}) {
    const Finished done =
        bench({"--model=mlp", "--image_size=4", "--devices=cpu:2", "--batch_size=8",
               "--num_batches=2", "--num_warmup_batches=1", flag, "--json=" + json});
    EXPECT_EQ(done.status, 0) << done.errors;
    const auto report = nlohmann::json::parse(take(json));
    const std::string_view given = flag;
    EXPECT_EQ(report["weight_decay"], given.starts_with("--weight") ? 0.25 : 0);
    EXPECT_EQ(report["clip_norm"], given.starts_with("--clip") ? 0.125 : 0);
    EXPECT_EQ(report["label_smoothing"], given.starts_with("--label") ? 0.5 : 0);
    hashes.insert(report["params_hash"].get<std::string>());
  }
  EXPECT_EQ(hashes.size(), 4u);
  EXPECT_THAT(refusal({"--label_smoothing=2"}), HasSubstr("--label_smoothing=2"));
}

TEST(TrainBench, ThatDivergesWritesItsJsonAndExitsWithOne) {
  const std::string json = temporary_path(".json");
  const Finished done =
      bench({"--model=mlp", "--devices=cpu:1", "--batch_size=8", "--num_batches=5",
             "--num_warmup_batches=1", "--learning_rate=1e30", "--json=" + json});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.errors, HasSubstr("error: training diverged: "));
  EXPECT_GT(nlohmann::json::parse(take(json))["first_nonfinite_step"].get<int>(), 0);
}

TEST(TrainBench, RefusesAScopeThatTheModelLacks) {
  for (const char* const other : {"--num_batches=1", "--dry_run"}) {
    const Finished done = bench({"--model=mlp", "--recompute=block0", other});
    EXPECT_EQ(done.status, 2);
    EXPECT_THAT(done.errors, AllOf(HasSubstr("error: --recompute=block0: the model has no nodes"),
                                   HasSubstr("fc0, fc1, fc2")));
  }
}

TEST(TrainBench, ReadsItsOwnConfiguration) {
  const std::string file = temporary_path(".json");
  for (const char* const model : {"--model=mlp", "--model=gpt", "--model=lstm"}) {
    const Finished printed = bench({model, "--print_config"});
    ASSERT_EQ(printed.status, 0) << printed.errors;
    std::ofstream(file) << printed.output;
    const Finished read = bench({model, "--config=" + file, "--print_config"});
    EXPECT_EQ(read.status, 0) << read.errors;
    EXPECT_EQ(nlohmann::json::parse(read.output), nlohmann::json::parse(printed.output));
  }
  local_file_system().remove(file);
}

TEST(TrainBench, RefusesFlagsThatMakeNoSense) {
  EXPECT_THAT(refusal({"--model=resnet5"}), HasSubstr("did you mean 'resnet50'?"));
  EXPECT_THAT(refusal({"--image_size=0"}), HasSubstr("--image_size=0"));
  EXPECT_THAT(refusal({"--model=vgg16", "--sequence_length=5"}),
              HasSubstr("error: --sequence_length=5: the model vgg16 has no tokens, but images "
                        "(--image_size); it is for the models gpt, lstm and gru"));
  EXPECT_THAT(refusal({"--model=vgg16", "--heads=5"}),
              HasSubstr("error: --heads=5 is for --model=gpt, not vgg16"));
  EXPECT_THAT(refusal({"--model=gpt", "--image_size=32"}),
              AllOf(HasSubstr("error: --image_size=32: "), HasSubstr("(--sequence_length)")));
  EXPECT_THAT(refusal({"--model=mlp", "--batch_norm=synchronised"}),
              HasSubstr("error: --batch_norm=synchronised: the model mlp has no batch norm"));
  EXPECT_THAT(refusal({"--num_batches=0"}), HasSubstr("--num_batches=0"));
  EXPECT_THAT(refusal({"--display_every=0"}), HasSubstr("--display_every=0"));
  EXPECT_THAT(refusal({"--plot=x"}), HasSubstr("--plot=x has no use without --strategies"));
  EXPECT_THAT(refusal({"--repetitions=2"}), HasSubstr("--repetitions"));
  EXPECT_THAT(refusal({"--strategies=all", "--allreduce=naive"}), HasSubstr("--allreduce"));
  EXPECT_THAT(refusal({"--strategies=all", "--all_reduce_spec=xring"}),
              HasSubstr("--all_reduce_spec=xring has no use beside --strategies"));
  EXPECT_THAT(refusal({"--strategies=naive,naive"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--strategies=naiv"}), HasSubstr("did you mean 'naive'?"));
  EXPECT_THAT(refusal({"--strategies=naive,"}), HasSubstr("--strategies"));
  EXPECT_THAT(refusal({"--strategies=hierarchical", "--devices=cpu:3"}), HasSubstr("even number"));
  EXPECT_THAT(refusal({"--strategies=naive,nccl"}), HasSubstr("--strategies=nccl: "));
  EXPECT_THAT(refusal({"--strategies=naive", "--trainer=parameter_server"}),
              HasSubstr("--trainer=parameter_server does not take naive; leave one of them out"));
  EXPECT_THAT(refusal({"--strategies=all", "--plot=f", "--json=./f"}), HasSubstr("overwrite"));
  EXPECT_THAT(refusal({"--dry_run", "--num_batches=3"}),
              HasSubstr("--num_batches=3 has no use beside --dry_run"));
  EXPECT_THAT(refusal({"--strategies=naive", "--trace_file=t"}),
              HasSubstr("--trace_file=t has no use beside --strategies"));
  EXPECT_THAT(refusal({"--num_warmup_batches=0", "--trace_file=t"}),
              HasSubstr("--trace_file=t records the last warm-up step"));
  EXPECT_THAT(refusal({"--check_equivalence=2", "--num_batches=3"}), HasSubstr("--num_batches"));
  EXPECT_THAT(refusal({"--logical_gpus=4"}), HasSubstr("names no GPU"));
  EXPECT_THAT(refusal({"--epochs=2"}), HasSubstr("unknown flag --epochs"));
  EXPECT_THAT(refusal({"--remeasure"}), HasSubstr("this flag was removed"));
  EXPECT_THAT(refusal({"--strategies=auto", "--trainer=parameter_server"}),
              HasSubstr("--trainer=parameter_server does not take auto"));
  EXPECT_THAT(refusal({"--strategies=auto"}), HasSubstr("describe it by --links=FILE"));
}

// The example shows the network that the benchmark trains.
TEST(Programs, MnistTrainsTheBenchmarksModel) {
  const std::string json = temporary_path(".json");
  const Finished done =
      run_program(cat(BELFRY_BIN_DIR, "/mnist"),
                  {"--devices=cpu:1", "--batch_size=64", "--max_steps=2", "--json=" + json});
  ASSERT_EQ(done.status, 0) << done.errors;
  const ModelSpec spec = find_model("mnist");
  const auto data = data::mnist({}, true);
  Trainer trainer(find_trainer("simple"),
                  {.model = spec.model,
                   .optimizer = spec.optimizer,
                   .batch_size = spec.batch_size,
                   .max_steps = 2},
                  *data);
  trainer.train();
  EXPECT_EQ(nlohmann::json::parse(take(json))["state_hash"],
            state_hash(trainer.session(), trainer.graph()));
}

}  // namespace train_bench_test
}  // namespace belfry
