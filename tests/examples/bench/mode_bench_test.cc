#include "belfry/examples/bench/mode_bench.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/examples/bench/bench_report.h"
#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/allreduce/prediction/machines.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/util/busy_texts.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {
namespace mode_bench_test {

using testing::ElementsAre;
using testing::HasSubstr;

TrainerOptions options(int towers) {
  TrainerOptions result{.model = smooth_model, .optimizer = sgd(0.1), .batch_size = 4};
  result.devices.clear();
  for (int i = 0; i < towers; ++i) result.devices.push_back(DeviceSpec::local("CPU", i));
  return result;
}

TEST(PlanMode, AddsUpThePeaksOfDevicesAndFourBatches) {
  const auto data = smooth_data(8);
  const ModePlan plan = plan_mode({"replicated", "naive"}, options(2), *data);
  EXPECT_EQ(plan.refusal, "");
  ASSERT_EQ(plan.use.size(), 2u);
  EXPECT_EQ(plan.use[0].variables, 4);
  EXPECT_GT(plan.use[0].peak_bytes, plan.use[0].variable_bytes);
  // A sample has four values and one value of f64.
  EXPECT_EQ(plan.bytes, plan.use[0].peak_bytes + plan.use[1].peak_bytes + 4 * 8 * 5 * 8);
}

// Gives no samples until a line is logged that says so.
class HangingData final : public Dataset {
 public:
  std::vector<Field> signature() const override { return of_->signature(); }
  std::int64_t size() const override { return of_->size(); }
  std::string describe() const override { return "my records"; }
  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    while (!is_told_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    of_->gather(indices, out);
  }

 private:
  const std::unique_ptr<Dataset> of_ = smooth_data(8);
  std::atomic<bool> is_told_ = false;
  const LogCopy copy_{[this](std::string_view line) {
    if (line.find("gather() of 'my records' has taken") != line.npos) is_told_ = true;
  }};
};

TEST(BenchModes, SayWhatARunWaitsForThatHangs) {
  const HangingData data;
  testing::internal::CaptureStderr();
  bench_modes(std::vector<Mode>{{"replicated", "naive"}}, options(2), data,
              {.steps = 1, .stall = {.warn = std::chrono::milliseconds(100)}});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("step 1 has made no progress for "));
}

// The data set has the samples of a whole step. As many batches are in flight as with one batch per
// step.
TEST(PlanMode, CountsTheBatchesThatAStepAddsUp) {
  const auto data = smooth_data(5 * 8);
  TrainerOptions several = options(2);
  several.batches.gradient_accumulation_steps = 5;
  const ModePlan plan = plan_mode({"replicated", "naive"}, several, *data);
  EXPECT_EQ(plan.held.data, 5 * 8 * 5 * 8);
  EXPECT_EQ(plan.bytes, plan.use[0].peak_bytes + plan.use[1].peak_bytes + (3 + 5) * 8 * 5 * 8);
  const std::vector<ModeRuns> runs =
      bench_modes(std::vector<Mode>{plan.mode}, several, *data, {.steps = 1});
  EXPECT_EQ(runs[0].memory.planned_bytes, plan.bytes) << "of the run, too";
}

TEST(PlanMode, ReadsNoDataAndCountsNoMemoryOfDevicesThatAreNotThere) {
  const LazyDataset data(smooth_data(1)->signature(),
                         []() -> std::unique_ptr<Dataset> { throw IoError("the data were read"); });
  TrainerOptions on_gpus = options(2);
  on_gpus.devices = {DeviceSpec::local("GPU", 0), DeviceSpec::local("GPU", 1)};
  const ModePlan plan = plan_mode({"replicated", "collective"}, on_gpus, data);
  ASSERT_EQ(plan.use.size(), 3u);
  EXPECT_TRUE(plan.use[1].declared);
  EXPECT_GT(plan.use[1].peak_bytes, 0);
  EXPECT_EQ(plan.bytes, plan.use[0].peak_bytes + 4 * 8 * 5 * 8);
}

TEST(PlanMode, SaysWhyAModeCannotServe) {
  const auto data = smooth_data(40);
  EXPECT_THAT(plan_mode({"replicated", "hierarchical"}, options(3), *data).refusal,
              HasSubstr("even number"));
  EXPECT_THAT(plan_mode({"replicated", "naive", 2}, options(2), *data).refusal,
              HasSubstr("gradient_repacking=2"));
}

TEST(RequireMemory, RefusesWhatTheMachineLacks) {
  const ModePlan plan{.mode = {"replicated", "naive"}, .bytes = 3 << 20};
  require_memory(plan, 3 << 20);
  try {
    require_memory(plan, (3 << 20) - 1);
    FAIL();
  } catch (const FlagError& error) {
    EXPECT_THAT(error.what(), HasSubstr("replicated naive needs 3.00 MiB of memory, but this "
                                        "machine has 3.00 MiB; use a smaller batch, "));
  }
}

TEST(BenchModes, SayWhichRunTheyAreAt) {
  const auto data = smooth_data(8);
  const Mode modes[] = {{"replicated", "naive"}, {"parameter_server", "colocate"}};
  FakeConsole fake(false, /*per_look=*/4);  // so every second step has a line
  bench_modes(modes, options(2), *data,
              {.steps = 2,
               .timer = {.warmup = 1, .display_every = 0, .console = &fake.console},
               .rounds = 2});
  EXPECT_EQ(fake.printed(),
            "round 1 of 2: replicated naive: warm-up step 1/1\n"
            "round 1 of 2: replicated naive: step 2/2\n"
            "round 1 of 2: parameter_server colocate: warm-up step 1/1\n"
            "round 1 of 2: parameter_server colocate: step 2/2\n"
            "round 2 of 2: replicated naive: warm-up step 1/1\n"
            "round 2 of 2: replicated naive: step 2/2\n"
            "round 2 of 2: parameter_server colocate: warm-up step 1/1\n"
            "round 2 of 2: parameter_server colocate: step 2/2\n");
}

TEST(BenchModes, SayThatBuildingGoesOn) {
  const auto data = smooth_data(8);
  const Mode modes[] = {{"replicated", "naive"}};
  EXPECT_THAT(busy_texts([&] { bench_modes(modes, options(2), *data, {.steps = 1}); }),
              ElementsAre("building the model for replicated naive"));
}

TEST(BenchModes, TakesTurnsAndStartsEachRunAfresh) {
  const auto data = smooth_data(8);
  const Mode modes[] = {{"replicated", "naive"}, {"parameter_server", "colocate"}};
  std::vector<std::string> order;
  const std::vector<ModeRuns> runs =
      bench_modes(modes, options(2), *data,
                  {.steps = 5,
                   .timer = {.warmup = 2},
                   .rounds = 3,
                   .on_run = [&](int round, const ModeRuns& run) {
                     order.push_back(cat(round, " ", run.mode.allreduce));
                     EXPECT_EQ(run.speeds.size(), static_cast<std::size_t>(round));
                   }});
  EXPECT_THAT(order, ElementsAre("1 naive", "1 colocate", "2 naive", "2 colocate", "3 naive",
                                 "3 colocate"));
  ASSERT_EQ(runs.size(), 2u);
  for (const ModeRuns& run : runs) {
    EXPECT_EQ(run.seconds.size(), 15u);
    EXPECT_GT(run.total_seconds, 0);
    EXPECT_EQ(run.params_hash, runs[0].params_hash);
    EXPECT_EQ(run.params_hash.size(), 16u);
  }
  EXPECT_THROW(bench_modes(modes, options(2), *data, {.steps = 0}), InvalidArgument);
}

TEST(BenchModes, SayWhatDivergedInTheirResultsAlone) {
  const auto data = smooth_data(8);
  TrainerOptions wild = options(2);
  wild.optimizer = sgd(1e200);
  const Mode modes[] = {{"replicated", "naive"}, {"parameter_server", "colocate"}};
  testing::internal::CaptureStderr();
  const std::vector<ModeRuns> runs = bench_modes(modes, wild, *data, {.steps = 5, .rounds = 2});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  for (const ModeRuns& run : runs) EXPECT_TRUE(run.divergence) << run.mode.name();
}

TEST(BenchModes, ChooseAlikeInAllRoundsWithTheBitsOfOthers) {
  const auto data = smooth_data(8);
  const Mode modes[] = {{"replicated", "collective"}, {"replicated", "auto"}};
  TrainerOptions chooses = options(2);
  chooses.aggregation.choice.machine = std::make_shared<const MachineDescription>(
      machine_of_links(2, {.latency_us = 10, .gbps = 1}));
  const ModePlan plan = plan_mode(modes[1], chooses, *data);
  EXPECT_EQ(plan.refusal, "");
  EXPECT_THAT(plan.choice, HasSubstr("auto: predicted for 4 gradients on CPU:0 CPU:1\n"));
  const std::vector<ModeRuns> runs = bench_modes(modes, chooses, *data, {.steps = 3, .rounds = 2});
  EXPECT_FALSE(runs[0].chosen);
  ASSERT_TRUE(runs[1].chosen);
  EXPECT_EQ(runs[1].mode.allreduce, "auto");
  EXPECT_THAT(plan.choice, HasSubstr("\nauto: " + runs[1].chosen->allreduce));
  EXPECT_EQ(runs[1].state_hash, runs[0].state_hash);
}

// The speeds of two rounds: naive 100 and 200 samples a second, colocate 50 and 150.
std::vector<ModeRuns> two_runs() {
  return {{.mode = {"replicated", "naive"},
           .speeds = {100, 200},
           .seconds = {0.08, 0.04},
           .total_seconds = 0.12,
           .params_hash = "a",
           .state_hash = "b"},
          {.mode = {"parameter_server", "colocate"},
           .speeds = {50, 150},
           .seconds = {0.16, 8 / 150.0},
           .total_seconds = 0.25,
           .params_hash = "a",
           .state_hash = "b"}};
}

TEST(BenchResults, AreMediansAndRatiosToTheReference) {
  const std::vector<BenchResult> results = bench_results({"mlp", cpus(2), 4}, two_runs(), 0);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].strategy, "naive");
  EXPECT_EQ(results[0].images_per_second, 150);
  EXPECT_EQ(results[0].images_per_second_per_device(), 75);
  EXPECT_EQ(results[0].ratio, 1);
  EXPECT_EQ(results[0].ratio_spread, 0);
  // Steps have speeds of 100 and 200: a standard deviation of 50, divided by the root of 2.
  EXPECT_NEAR(results[0].uncertainty, 35.3553, 1e-3);
  EXPECT_NEAR(results[0].jitter, 1.4826 * 50, 1e-9);
  EXPECT_EQ(results[1].ratio, 0.625);
  EXPECT_EQ(results[1].ratio_spread, 0.25);
  EXPECT_TRUE(results[1].canonical);
  EXPECT_THROW(bench_results({"mlp", cpus(2), 4}, two_runs(), 2), InvalidArgument);
}

TEST(BenchResults, HaveEveryFieldAsJson) {
  const BenchedModel model{
      .name = "mlp",
      .devices = cpus(2),
      .batch_size = 4,
      .settings = {.fuse = false, .weight_decay = 0.25, .clip_norm = 2, .recompute = {"a", "b*"}},
      .label_smoothing = 0.125,
      .batch_norm = "tower"};
  const auto json = nlohmann::json::parse(to_json(bench_results(model, two_runs(), 0)[1]).str());
  EXPECT_EQ(json.size(), 38u);
  EXPECT_EQ(json["batch_norm"], "tower");
  EXPECT_EQ(json["weight_decay"], 0.25);
  EXPECT_EQ(json["clip_norm"], 2);
  EXPECT_EQ(json["label_smoothing"], 0.125);
  EXPECT_TRUE(json["first_nonfinite_step"].is_null());
  EXPECT_TRUE(json["nonfinite_variable"].is_null());
  EXPECT_EQ(json["model"], "mlp");
  EXPECT_EQ(json["strategy"], "colocate");
  EXPECT_EQ(json["canonical"], true);
  EXPECT_EQ(json["devices"], 2);
  EXPECT_EQ(json["processes"], 1);
  EXPECT_EQ(json["hosts"], nlohmann::json::array());
  EXPECT_TRUE(json["communication_hidden_share"].is_null());
  EXPECT_EQ(json["batch_size"], 4);
  EXPECT_EQ(json["global_batch_size"], 8);
  EXPECT_EQ(json["shards"], 1);
  EXPECT_EQ(json["fuse"], false);
  EXPECT_EQ(json["recompute"], "a,b*");
  EXPECT_EQ(json["examples_per_second"], 100);
  EXPECT_EQ(json["examples_per_second_per_device"], 50);
  EXPECT_GT(json["uncertainty"], 0);
  EXPECT_GT(json["jitter"], 0);
  EXPECT_EQ(json["ratio"], 0.625);
  EXPECT_EQ(json["ratio_spread"], 0.25);
  EXPECT_EQ(json["params_hash"], "a");
  EXPECT_EQ(json["state_hash"], "b");
}

// 150 images a second are 18.75 steps of 8.
TEST(BenchResults, HaveTokensAndTheShareOfThePeakWhereThereAreSome) {
  std::vector<ModeRuns> runs = two_runs();
  runs[0].step_flops = 1000;
  const BenchedModel model{
      .name = "gpt", .devices = cpus(2), .batch_size = 4, .tokens = 16, .peak = 75000};
  const BenchResult result = bench_results(model, runs, 0)[0];
  EXPECT_EQ(result.tokens_per_second(), 2400);
  EXPECT_EQ(result.mfu, 0.25);
  const BenchedModel other{.name = "mlp", .devices = cpus(2), .batch_size = 4};
  const auto json = nlohmann::json::parse(to_json(bench_results(other, runs, 0)[0]).str());
  EXPECT_TRUE(json["tokens_per_second"].is_null());
  EXPECT_TRUE(json["mfu"].is_null());
}

TEST(BenchResults, SayWhatAutoChoseAndWhetherThatIsCanonical) {
  std::vector<ModeRuns> runs = two_runs();
  runs[1].mode = {"replicated", "auto"};
  runs[1].chosen = Mode{.trainer = "replicated", .allreduce = "ring", .bucket_mb = 4};
  const std::vector<BenchResult> results = bench_results({"mlp", cpus(3), 4}, runs, 0);
  EXPECT_FALSE(results[1].canonical);
  const auto json = nlohmann::json::parse(to_json(results[1]).str());
  EXPECT_EQ(json["strategy"], "auto");
  EXPECT_EQ(json["resolved"], "ring");
  EXPECT_EQ(json["bucket_mb"], 4);
  EXPECT_FALSE(nlohmann::json::parse(to_json(results[0]).str()).contains("resolved"));
  EXPECT_THAT(bench_table(results, {}), HasSubstr("auto (ring) "));
}

TEST(BenchTable, ShowsDifferencesWithHalfTheirSpreadAndRefusals) {
  const ModePlan refused{.mode = {"replicated", "hierarchical"}, .refusal = "odd"};
  const std::string table =
      bench_table(bench_results({"mlp", cpus(2), 4}, two_runs(), 0), std::span(&refused, 1));
  EXPECT_THAT(table, HasSubstr("naive                        150.00      75.00"));
  EXPECT_THAT(table, HasSubstr("0.625    -37.5 % +/- 12.5"));
  EXPECT_THAT(table, HasSubstr("hierarchical: refused: odd\n"));
}

TEST(BenchTable, KeepsRowsApartHoweverLongASpecIs) {
  std::vector<ModeRuns> runs = two_runs();
  runs[0].mode.allreduce = "shuffle:1:collective" + std::string(300, '#');
  const std::string table = bench_table(bench_results({"mlp", cpus(2), 4}, runs, 0), {});
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
  EXPECT_THAT(table, HasSubstr(runs[0].mode.allreduce + "     "));
}

TEST(BenchResults, SayHowDevicesShareABatchUnlessEqually) {
  const auto json_of = [](const BenchedModel& model) {
    return nlohmann::json::parse(to_json(bench_results(model, two_runs(), 0)[0]).str());
  };
  EXPECT_FALSE(json_of({"mlp", cpus(2), 4}).contains("tower_weights"));
  EXPECT_EQ(json_of({"mlp", cpus(2), 4, {3, 1}})["tower_weights"], (nlohmann::json{3, 1}));
}

TEST(BenchPlot, NamesModelDevicesAndStrategies) {
  std::vector<BenchResult> results = bench_results({"mlp", cpus(2), 4}, two_runs(), 0);
  results[0].images_per_second = 10470.4;
  results[0].uncertainty = 5;
  results[0].canonical = true;
  results[1].resolved = "ring";
  results[1].images_per_second = 8.125;
  results[1].canonical = false;
  const std::string commands = bench_plot({"mlp", cpus(2), 4}, results);
  EXPECT_THAT(commands, HasSubstr("set title 'mlp, 2 devices, batch 4 per device'"));
  EXPECT_THAT(commands, HasSubstr("naive\t10470.4\t10\t10470\t1\n"));
  EXPECT_THAT(commands, HasSubstr("colocate (ring)\t8.125\t"));
  EXPECT_THAT(commands, HasSubstr("\t8.12\t2\n"));
}

TEST(Disagreement, NamesCanonicalStrategiesWithOtherBitsAlone) {
  std::vector<BenchResult> results = bench_results({"mlp", cpus(2), 4}, two_runs(), 0);
  EXPECT_EQ(disagreement(results), "");
  results[1].state_hash = "c";
  EXPECT_EQ(disagreement(results), "naive and colocate");
  results[1].canonical = false;
  EXPECT_EQ(disagreement(results), "");
}

}  // namespace mode_bench_test
}  // namespace belfry
