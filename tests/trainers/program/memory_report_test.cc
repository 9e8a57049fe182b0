// The purposes of planned memory in --memory_report.
#include "belfry/trainers/program/memory_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/text.h"
#include "belfry/ops/matmul.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace memory_report_test {

using testing::HasSubstr;

constexpr std::int64_t kWeights = 8 * (4 * 5 + 5 + 5 + 1);  // bytes of smooth_model

TrainerOptions options(int towers, int shards, OnNonfinite policy = OnNonfinite::kContinue) {
  return {.model = smooth_model,
          .optimizer = momentum(0.1),
          .devices = cpus(towers),
          .batch_size = 8,
          .shards = shards,
          .on_nonfinite = policy};
}

MemoryReport report_of(const std::string& kind, const TrainerOptions& options) {
  const auto data = smooth_data(64);
  Trainer trainer(find_trainer(kind), options, *data);
  const MemoryReport report = trainer.session().memory_report();
  // The kinds add up to all planned bytes. Feeds on CPUs belong to the caller.
  const std::vector<DeviceUse> use = trainer.session().device_use();
  for (std::size_t d = 0; d < use.size(); ++d)
    EXPECT_EQ(report.devices[d].bytes.total() - report.devices[d].bytes[MemoryKind::kFeed],
              use[d].bytes);
  return report;
}

// The bytes of tensors of a kind, on all devices together.
std::int64_t bytes_of(const MemoryReport& report, MemoryKind kind) {
  std::int64_t bytes = 0;
  for (const PlannedTensor& tensor : report.tensors)
    if (tensor.kind == kind) bytes += tensor.bytes;
  return bytes;
}

TEST(MemoryReport, TellsKindsOfOneDeviceApart) {
  const MemoryReport report = report_of("simple", options(1, 1));
  const KindBytes& bytes = report.devices[0].bytes;
  EXPECT_EQ(bytes[MemoryKind::kWeight], kWeights);
  EXPECT_EQ(bytes[MemoryKind::kOptimizer], kWeights) << "a slot of momentum each";
  EXPECT_EQ(bytes_of(report, MemoryKind::kGradient), kWeights);
  EXPECT_GT(bytes[MemoryKind::kGradient], 0) << "at the moment of the peak";
  EXPECT_LE(bytes[MemoryKind::kGradient], kWeights);
  EXPECT_EQ(bytes[MemoryKind::kShardPartial], 0);
  EXPECT_GE(bytes[MemoryKind::kActivation], 8 * 8 * 5) << "of the hidden layer";
  EXPECT_EQ(bytes[MemoryKind::kFetch], 2 * 8) << "the loss and a metric";
  EXPECT_EQ(bytes[MemoryKind::kFeed], 8 * 8 * 5) << "a batch";
}

TEST(MemoryReport, CountsFrozenWeightsAsWeights) {
  TrainerOptions frozen = options(1, 1);
  frozen.model = scaled_model;
  const MemoryReport report = report_of("simple", frozen);
  EXPECT_EQ(report.devices[0].bytes[MemoryKind::kWeight], kWeights + 4 * 8);
  EXPECT_EQ(report.devices[0].bytes[MemoryKind::kOptimizer], kWeights);
}

TEST(MemoryReport, CountsPartialSumsOfAllShards) {
  const MemoryReport report = report_of("simple", options(1, 4));
  // Partial sums of the loss and the metric add to that.
  EXPECT_GE(bytes_of(report, MemoryKind::kShardPartial), 4 * kWeights);
  EXPECT_EQ(bytes_of(report, MemoryKind::kGradient), 0) << "summed as they are applied";
  const MemoryReport checked = report_of("simple", options(1, 4, OnNonfinite::kStop));
  EXPECT_GE(bytes_of(checked, MemoryKind::kGradient), kWeights)
      << "kept until all are known to be finite";
}

TEST(MemoryReport, CountsReplicasThatShareAStorageOnce) {
  const MemoryReport report = report_of("replicated", options(2, 2));
  EXPECT_EQ(report.devices[0].bytes[MemoryKind::kWeight], kWeights);
  EXPECT_EQ(report.devices[1].bytes[MemoryKind::kWeight], 0);
  EXPECT_GE(bytes_of(report, MemoryKind::kGradient), 2 * kWeights) << "one per tower";
}

TEST(MemoryReport, NamesTheLargestTensorsFirst) {
  const MemoryReport report = report_of("simple", options(1, 1));
  EXPECT_TRUE(std::ranges::is_sorted(report.tensors, std::greater(), &PlannedTensor::bytes));
  const auto weight = std::ranges::find(report.tensors, "fc0/W", &PlannedTensor::name);
  ASSERT_NE(weight, report.tensors.end());
  EXPECT_EQ(weight->bytes, 8 * 4 * 5);
  EXPECT_EQ(weight->site.file_name(), "small_problem.h");
}

TEST(MemoryLine, GroupsDevicesThatNeedAsMuch) {
  constexpr std::int64_t kMiB = 1 << 20;
  MemoryReport report;
  for (int d = 0; d < 4; ++d) {
    KindBytes bytes;
    bytes[MemoryKind::kWeight] = d == 0 ? kMiB : 0;
    bytes[MemoryKind::kActivation] = d == 3 ? 0 : 2 * kMiB;
    bytes[MemoryKind::kFeed] = d == 0 ? kMiB : 0;
    bytes[MemoryKind::kFetch] = d == 3 ? 0 : 8;
    report.devices.push_back({DeviceSpec::local("CPU", d), bytes, bytes[MemoryKind::kFeed]});
  }
  EXPECT_EQ(memory_line(report, {.batches = 3}),
            "memory: 10.00 MiB planned\n"
            "  CPU:0 6.00 MiB (feeds 3.00 MiB, activations 2.00 MiB, weights 1.00 MiB)\n"
            "  CPU:1 CPU:2 each 2.00 MiB (activations 2.00 MiB)");
  EXPECT_THAT(memory_line(report, {.batches = 3, .saved = 2 * kMiB}),
              testing::AllOf(HasSubstr("memory: 12.00 MiB planned"),
                             HasSubstr("\n  a copy to save 2.00 MiB")));
}

// The model has two layers, each with weights and a bias.
TEST(MemoryLine, CountsTheCopyThatIsSavedOnce) {
  const auto data = smooth_data(64);
  Trainer trainer(find_trainer("replicated"), options(2, 2), *data);
  EXPECT_EQ(bytes_of_snapshot(trainer.graph()), 2 * kWeights) << "with the slots of momentum";
  TrainerOptions accumulates = options(2, 2);
  accumulates.batches.gradient_accumulation_steps = 2;
  Trainer accumulating(find_trainer("replicated"), accumulates, *data);
  EXPECT_EQ(bytes_of_snapshot(accumulating.graph()), 2 * kWeights)
      << "sums of gradients are not saved";
}

std::string error_of_training_in(std::int64_t bytes, bool plans = false) try {
  const auto data = smooth_data(64);
  Console console(nullptr);
  TrainerOptions wanted = options(2, 2);
  wanted.callbacks = {std::make_shared<TellMemory>(console, false, MemoryLimit{bytes, "use less"})};
  wanted.session.dry_run = plans;
  Trainer trainer(find_trainer("replicated"), wanted, *data);
  plans ? trainer.loop().check_callbacks() : trainer.train();
  return "";
} catch (const OutOfMemory& error) {
  return error.what();
}

TEST(TellMemory, RefusesWhatTheMachineHasNoMemoryFor) {
  EXPECT_EQ(error_of_training_in(1 << 20), "");
  EXPECT_THAT(error_of_training_in(1000),
              testing::AllOf(HasSubstr("training needs "),
                             HasSubstr(" of memory, but this machine has 1000 bytes; use less")));
}

// A plan may be for another machine, so it only warns.
TEST(TellMemory, WarnsOfWhatTheMachineHasNoMemoryForInPlans) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(error_of_training_in(1000, true), "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(" of memory, but this machine has 1000 bytes; use less"));
}

class MemoryReportFile : public TrainTest {
 protected:
  ~MemoryReportFile() override { std::filesystem::remove(path("memory")); }
  nlohmann::json memory() const {
    const std::vector<std::byte> bytes = local_file_system().read(path("memory"));
    return nlohmann::json::parse(
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
};

TEST_F(MemoryReportFile, AddsUpDevicesAndBatchesInFlight) {
  const TrainResult result = run_train(
      {"--devices=cpu:2", "--memory_report=" + path("memory"), "--json=" + json_.string()});
  ASSERT_EQ(result.code, 0) << result.error;
  const nlohmann::json json = memory();
  std::int64_t sum = 0;
  for (const nlohmann::json& device : json["devices"]) {
    std::int64_t of_device = 0;
    for (const auto& [kind, bytes] : device["kinds"].items())
      of_device += bytes.get<std::int64_t>();
    EXPECT_EQ(device["planned_bytes"], of_device);
    EXPECT_EQ(device["kinds"].size(), kMemoryKinds);
    sum += of_device;
  }
  EXPECT_EQ(json["planned_bytes"], sum);
  EXPECT_EQ(json["largest_tensors"].size(), 10u);
  for (const char* member : {"name", "line", "kind", "device", "bytes"})
    EXPECT_TRUE(json["largest_tensors"][0].contains(member)) << member;
  EXPECT_EQ(json["saved_copy_bytes"], 0);
  EXPECT_EQ(report()["planned_bytes"], sum);
  EXPECT_THAT(result.out, HasSubstr(cat("\nmemory: ", byte_text(sum), " planned\n  CPU:0 ")));
  EXPECT_GT(report()["startup_seconds"], 0);
  EXPECT_GE(report()["peak_rss_bytes"], report()["rss_before_plan_bytes"]);
}

TEST_F(MemoryReportFile, CountsTheCopyThatIsSaved) {
  const TrainResult result = run_train({"--devices=cpu:2", "--memory_report=" + path("memory"),
                                        "--json=" + json_.string(), "--run_dir=" + path("saved")});
  ASSERT_EQ(result.code, 0) << result.error;
  const nlohmann::json json = memory();
  std::int64_t sum = json["saved_copy_bytes"].get<std::int64_t>();
  EXPECT_GT(sum, 0);
  for (const nlohmann::json& device : json["devices"])
    sum += device["planned_bytes"].get<std::int64_t>();
  EXPECT_EQ(json["planned_bytes"], sum);
  EXPECT_EQ(report()["planned_bytes"], sum);
  std::filesystem::remove_all(path("saved"));
}

// A batch waits in memory of the host, and each GPU has two slots.
TEST(MemoryReport, CountsFeedsOfGpusOnTheHostToo) {
  const auto data = smooth_data(64);
  TrainerOptions asked = options(2, 2);
  asked.devices = {DeviceSpec::local("GPU", 0), DeviceSpec::local("GPU", 1)};
  asked.session.dry_run = true;
  Trainer trainer(find_trainer("replicated"), asked, *data);
  const MemoryReport report = trainer.session().memory_report();
  EXPECT_EQ(report.devices[0].fed_bytes, 2 * 8 * 8 * 5) << "of both towers";
  EXPECT_GE(report.devices[0].bytes[MemoryKind::kFeed], 3 * report.devices[0].fed_bytes);
  EXPECT_EQ(report.devices[1].fed_bytes, 0);
  EXPECT_GE(report.devices[1].bytes[MemoryKind::kFeed], 2 * 8 * 8 * 5);
}

TEST_F(MemoryReportFile, IsWrittenByADryRunThatReadsNoData) {
  const TrainResult result =
      run_train({"--dry_run", "--devices=gpu:2", "--memory_report=" + path("memory"),
                 "--json=" + json_.string()},
                unreadable_recipe());
  ASSERT_EQ(result.code, 0) << result.error;
  const nlohmann::json json = memory();
  ASSERT_EQ(json["devices"].size(), 3u);
  std::int64_t sum = 0;
  for (const nlohmann::json& device : json["devices"])
    sum += device["planned_bytes"].get<std::int64_t>();
  EXPECT_EQ(json["planned_bytes"], sum);
  EXPECT_EQ(report()["planned_bytes"], sum);
  EXPECT_EQ(json["devices"][1]["kinds"]["weights"], kWeights);
}

// Products of all samples of a device with each other: three matrices take 24 bytes each, so eight
// devices take more memory than there is, and each alone takes less.
TEST_F(MemoryReportFile, IsNotWrittenIfThePlanDoesNotFit) {
  const auto samples =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(host_memory()) / 160));
  Recipe recipe = small_recipe();
  recipe.data = [=](bool train) { return smooth_data(train ? 8 * samples : 10); };
  recipe.model = [](Tower& tower, Output x, Output y) {
    const Output hidden = dense(tower, "fc", x, {.units = 4});
    return reduce_mean(square(matmul(hidden, x, {.transpose_b = true}))) + reduce_mean(y);
  };
  const std::string run = path(".run");
  for (const auto& [flag, batch] :
       {std::pair("--batch_size", samples), {"--global_batch_size", 8 * samples}}) {
    const TrainResult refused = run_train(
        {"--devices=cpu:8", "--shards=8", cat(flag, "=", batch), "--run_dir=" + run}, recipe);
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.error, HasSubstr(" of memory, but this machine has "));
    EXPECT_THAT(refused.error,
                HasSubstr(cat("use a smaller ", flag, ", --recompute, or fewer --devices")));
    EXPECT_FALSE(std::filesystem::exists(run)) << "of a start that is refused";
  }
}

TEST_F(MemoryReportFile, IsCheckedBeforeTraining) {
  const TrainResult missing = run_train({"--memory_report=/nowhere/memory.json"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.error, HasSubstr("--memory_report=/nowhere/memory.json cannot be written"));
  const TrainResult twice =
      run_train({"--memory_report=" + path("memory"), "--json=" + path("memory")});
  EXPECT_THAT(twice.error, HasSubstr("would overwrite each other"));
}

}  // namespace memory_report_test
}  // namespace belfry
