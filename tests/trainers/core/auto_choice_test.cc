// --allreduce=auto in training programs.
#include "belfry/trainers/core/auto_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/device.h"
#include "belfry/tests/allreduce/prediction/machines.h"
#include "belfry/tests/support/two_devices.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/machine/machine_file.h"
#include "belfry/trainers/models/models.h"
#include "belfry/trainers/program/train.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {
namespace auto_choice_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string described(const char* name) {
  return cat(BELFRY_SOURCE_DIR, "/docs/links/", name, ".json");
}

// The output and report of a program.
struct Ran {
  int code;
  std::string out, error;
  nlohmann::json report;
};

class AutoTraining : public ::testing::Test {
 protected:
  Ran run(std::vector<std::string> arguments) const {
    const std::string json = folder_.path() + "/report.json";
    test::name_two_devices(arguments);
    arguments.insert(arguments.begin(), "program");
    arguments.push_back("--json=" + json);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Ran ran{.code = train(static_cast<int>(argv.size()), argv.data(),
                          {.model = smooth_model,
                           .data = [](bool) { return smooth_data(70); },
                           .optimizer = adam(0.01),
                           .batch_size = 4})};
    ran.out = ::testing::internal::GetCapturedStdout();
    ran.error = ::testing::internal::GetCapturedStderr();
    if (ran.code == 0) ran.report = nlohmann::json::parse(text_of(json));
    return ran;
  }

  static std::string text_of(const std::string& path) {
    const std::vector<std::byte> bytes = local_file_system().read(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // The flag --links with a file that describes this machine.
  std::string links(const MachineDescription& machine, const char* name = "links.json") const {
    const std::string path = folder_.path() + "/" + name;
    write_text_file(local_file_system(), path, to_json(machine).str());
    return "--links=" + path;
  }

  test::TemporaryFolder folder_;
};

// Only launches cost time, so one collective for all tensors is best.
MachineDescription slow_to_launch(int devices) {
  MachineDescription machine = machine_of_workers(devices);
  machine.launch_us = 1000;
  return machine;
}

// Only bytes cost time, and two workers are twice as fast as one. They do best with two tensors at
// a time.
MachineDescription free_to_launch(int devices) {
  MachineDescription machine = machine_of_workers(devices);
  machine.launch_us = machine.wait_us = machine.share_us = machine.run_us = 0;
  machine.bandwidth = {{1, 10, 20}};
  return machine;
}

// Links of a ring are fast, and all others are very slow.
MachineDescription ring_of_four() {
  MachineDescription machine = machine_of_links(4, {.latency_us = 1, .gbps = 100});
  for (const auto& [a, b] : {std::pair{0, 2}, {1, 3}})
    machine.links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] =
        machine.links[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = {10000, 0.001};
  return machine;
}

TEST_F(AutoTraining, PrintsTheTableOnceAndReportsWhatItChose) {
  const std::string described_links = links(slow_to_launch(4));
  const Ran ran = run({"--devices=cpu:4", "--allreduce=auto", described_links});
  ASSERT_EQ(ran.code, 0) << ran.error;
  const std::string head = "auto: predicted for 4 gradients on CPU:0 CPU:1 CPU:2 CPU:3\n";
  const std::size_t at = ran.out.find(head);
  ASSERT_NE(at, std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find(head, at + 1), std::string::npos);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("  hierarchical, 4 MiB"), HasSubstr("ring, 4 MiB"),
                             HasSubstr("left out (not canonical)"), Not(HasSubstr("colocate")),
                             HasSubstr("\nauto: collective, 4 MiB, predicted "),
                             HasSubstr("program: replicated, collective on CPU:0")));
  EXPECT_EQ(ran.report["allreduce"], "collective");
  EXPECT_EQ(ran.report["allreduce_requested"], "auto");
  EXPECT_EQ(ran.report["bucket_mb"], 4);
  EXPECT_EQ(ran.report["canonical"], true);
  const Ran named = run({"--devices=cpu:4", "--allreduce=collective"});
  EXPECT_EQ(named.report["allreduce_requested"], "collective");
  EXPECT_EQ(named.report["state_hash"], ran.report["state_hash"]);
  EXPECT_THAT(named.out, Not(HasSubstr("auto")));
}

TEST_F(AutoTraining, ChoosesStrategiesAndBucketsByTheMachineWithTheSameBits) {
  const MachineDescription slow_links = machine_of_links(4, {.latency_us = 50, .gbps = 1});
  const struct {
    const char* devices;
    std::string links;
    std::vector<std::string> flags;
    const char* strategy;
    double bucket_mb;
  } table[] = {
      {"cpu:4", links(slow_to_launch(4), "1"), {}, "collective", 4},
      {"cpu:4", links(free_to_launch(4), "2"), {}, "collective", 0},
      {"cpu:4", links(slow_to_launch(4), "1"), {"--bucket_mb=0"}, "collective", 0},
      {"cpu:4", links(free_to_launch(4), "2"), {"--bucket_mb=2"}, "collective", 2},
      {"cpu:4", links(slow_links, "3"), {}, "naive", 4},
      {"cpu:4", links(slow_links, "3"), {"--bucket_mb=0"}, "naive", 0},
      {"cpu:8", "--links=" + described("dgx1"), {}, "hierarchical", 0},
      {"cpu:8", "--links=" + described("dgx1"), {"--bucket_mb=1"}, "hierarchical", 1},
  };
  for (const auto& [devices, machine, flags, strategy, bucket_mb] : table) {
    std::vector<std::string> all{cat("--devices=", devices), "--allreduce=auto", machine};
    all.insert(all.end(), flags.begin(), flags.end());
    const Ran ran = run(all);
    ASSERT_EQ(ran.code, 0) << ran.error;
    EXPECT_EQ(ran.report["allreduce"], strategy) << ran.out;
    EXPECT_EQ(ran.report["bucket_mb"], bucket_mb) << ran.out;
    EXPECT_EQ(ran.report["canonical"], true);
    EXPECT_EQ(ran.report["state_hash"], run({cat("--devices=", devices)}).report["state_hash"])
        << strategy << bucket_mb;
  }
}

// There is a step for full batches and one for the last batch, but one choice.
TEST_F(AutoTraining, ChoosesOnceForAllFormsOfSteps) {
  const std::string file = links(slow_to_launch(3));
  const Ran ran = run({"--devices=cpu:3", "--uneven=weight", "--allreduce=auto", file});
  ASSERT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ran.report["steps"], 6);
  const std::size_t at = ran.out.find("auto: predicted");
  EXPECT_EQ(ran.out.find("auto: predicted", at + 1), std::string::npos);
  EXPECT_EQ(ran.report["state_hash"],
            run({"--devices=cpu:3", "--uneven=weight"}).report["state_hash"]);
}

TEST_F(AutoTraining, TakesOrdersThatAreNotCanonicalIfItMay) {
  const std::vector<std::string> flags{"--devices=cpu:4", "--allreduce=auto",
                                       links(ring_of_four())};
  const Ran canonical = run(flags);
  ASSERT_EQ(canonical.code, 0) << canonical.error;
  EXPECT_EQ(canonical.report["canonical"], true);
  std::vector<std::string> any = flags;
  any.push_back("--auto_any");
  const Ran ran = run(any);
  ASSERT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ran.report["allreduce"], "ring") << ran.out;
  EXPECT_EQ(ran.report["canonical"], false);
  EXPECT_EQ(ran.report["replicas_equal"], true);
}

TEST_F(AutoTraining, PlansAndExplainsForDevicesOfTheFile) {
  const std::string dgx1 = "--links=" + described("dgx1");
  const Ran dry = run({"--dry_run", "--devices=gpu:8", "--allreduce=auto", dgx1});
  ASSERT_EQ(dry.code, 0) << dry.error;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("\nauto: hierarchical"), HasSubstr("device:GPU:7")));
  const Ran explained = run({"--explain=tower1/fc0/MatMul", "--allreduce=auto", dgx1});
  ASSERT_EQ(explained.code, 0) << explained.error;
  EXPECT_THAT(explained.out, AllOf(HasSubstr("\nauto: "), HasSubstr("tower1/fc0/MatMul")));
  const Ran placed = run({"--log_device_placement", "--allreduce=auto", dgx1});
  EXPECT_THAT(placed.out, AllOf(HasSubstr("\nauto: "), HasSubstr("fc0/W: (Variable): ")));
}

TEST_F(AutoTraining, RefusesFilesThatDescribeNoSuchMachine) {
  const Ran missing = run({"--allreduce=auto", "--links=/nowhere/l.json"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.error, HasSubstr("--links=/nowhere/l.json: "));
  const std::string small = links(machine_of_workers(2));
  const Ran few = run({"--devices=cpu:3", "--allreduce=auto", small});
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(
      few.error,
      HasSubstr(small + ": the machine has 2 devices of type CPU, but 3 devices are asked for"));
  const std::string apart = links(machine_of_links(4, {.latency_us = 1, .gbps = 1}));
  const Ran logical =
      run({"--dry_run", "--devices=gpu:4", "--logical_gpus=2", "--allreduce=auto", apart});
  EXPECT_EQ(logical.code, 2);
  EXPECT_THAT(logical.error,
              HasSubstr(apart + " describes devices with a memory each, not --logical_gpus=2 that "
                                "share one; leave one of them out"));
}

TEST_F(AutoTraining, TakesTheDefaultIfNoMachineIsDescribed) {
  const Ran ran = run({"--devices=cpu:4", "--allreduce=auto"});
  ASSERT_EQ(ran.code, 0) << ran.error;
  EXPECT_EQ(ran.report["allreduce"], "collective");
  EXPECT_EQ(ran.report["bucket_mb"], 4);
  EXPECT_THAT(ran.error, HasSubstr("--allreduce=auto takes collective: no machine is described to "
                                   "choose by (--links=FILE)"));
  EXPECT_THAT(ran.out, Not(HasSubstr("auto")));
}

std::shared_ptr<const MachineDescription> two_workers() {
  return std::make_shared<const MachineDescription>(machine_of_workers(2));
}

TEST(AutoChoice, DependsOnTheModelsGradients) {
  const auto chosen = [](const char* model) {
    const ModelSpec spec = find_model(model, 32);
    const auto data = synthetic_data(spec.fields, spec.classes, 8, 1);
    const auto slow_links = std::make_shared<const MachineDescription>(
        read_machine(local_file_system(), described("slow_links")));
    Trainer trainer(
        find_trainer("replicated"),
        {.model = spec.model,
         .optimizer = spec.optimizer,
         .devices = parse_devices("gpu:8"),
         .aggregation = {.allreduce = "auto", .choice = {.buckets = {0}, .machine = slow_links}},
         .batch_size = 1,
         .session = {.dry_run = true}},
        *data);
    return trainer.built().options().aggregation.allreduce;
  };
  EXPECT_EQ(chosen("mlp"), "collective");         // six large tensors
  EXPECT_EQ(chosen("resnet20"), "hierarchical");  // 65 small ones
}

TEST(AutoChoice, NeedsAMachine) {
  const auto data = smooth_data(8);
  const TrainerOptions options{.model = smooth_model,
                               .optimizer = sgd(0.1),
                               .devices = parse_devices("cpu:2"),
                               .aggregation = {.allreduce = "auto"},
                               .batch_size = 4};
  EXPECT_THAT(test::message_of<InvalidArgument>(
                  [&] { Trainer(find_trainer("replicated"), options, *data); }),
              HasSubstr("describe one, or name a strategy"));
}

TEST(AutoChoice, TriesSizesOfBucketsThatCutTheGradientsDifferently) {
  const auto data = smooth_data(8);
  TrainerOptions options{.model = smooth_model,
                         .optimizer = sgd(0.1),
                         .devices = parse_devices("cpu:2"),
                         .aggregation = {.allreduce = "auto", .choice = {.machine = two_workers()}},
                         .batch_size = 4};
  const std::string small = Trainer(find_trainer("replicated"), options, *data).built().choice();
  EXPECT_THAT(small, AllOf(HasSubstr("  collective, 4 MiB"), HasSubstr("  collective  "),
                           Not(HasSubstr("16 MiB")), Not(HasSubstr("1 MiB"))));
  options.aggregation.choice.buckets = {0.0001, 4, 0.00001};
  const std::string cut = Trainer(find_trainer("replicated"), options, *data).built().choice();
  EXPECT_THAT(cut, AllOf(HasSubstr("collective, 1e-04 MiB"), HasSubstr("collective, 1e-05 MiB"),
                         HasSubstr("collective, 4 MiB"), HasSubstr("naive, 1e-04 MiB"),
                         Not(HasSubstr("naive, 4 MiB"))));
}

TEST(AutoChoice, OfPackedGradientsTriesNoBuckets) {
  const ModelSpec spec = find_model("mnist", 28);
  const auto data = synthetic_data(spec.fields, spec.classes, 4, 1);
  Trainer trainer(find_trainer("replicated"),
                  {.model = spec.model,
                   .optimizer = spec.optimizer,
                   .devices = parse_devices("cpu:2"),
                   .aggregation = {.allreduce = "auto",
                                   .choice = {.machine = two_workers()},
                                   .gradient_repacking = 2},
                   .batch_size = 2},
                  *data);
  EXPECT_THAT(trainer.built().choice(), Not(HasSubstr("MiB")));
  EXPECT_EQ(trainer.built().options().aggregation.bucket_mb, 0);
}

}  // namespace auto_choice_test
}  // namespace belfry
