// The output of a dry run about one of several processes.
#include "belfry/trainers/core/planned_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/trainers/core/small_problem.h"
#include "belfry/trainers/core/planned_work.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {
namespace planned_step_test {

using ::testing::HasSubstr;

// The planned step of smooth_model in f64. All its gradients travel as one row.
PlannedStep planned(ProcessPlace place, const char* type, int devices,
                    const std::string& allreduce = "collective", int per_host = 1) {
  TrainerOptions options{
      .model = smooth_model,
      .optimizer = sgd(0.1),
      .aggregation = {.allreduce = allreduce, .bucket_mb = 4},
      .batch_size = 4,
      .session = {.dry_run = true, .planned_place = place, .planned_per_host = per_host}};
  options.devices.clear();
  for (int d = 0; d < devices; ++d) options.devices.push_back(DeviceSpec::local(type, d));
  const auto data = smooth_data(64);
  Trainer trainer(find_trainer("replicated"), options, *data);
  return planned_step(trainer.built());
}

constexpr std::int64_t kGradients = 4 * 5 + 5 + 5 + 1;  // elements

// Besides gradients, each process sends the loss and metric of each tower, its request, and whether
// all is finite.
std::int64_t bytes_of_values(int towers) { return 8 * (2 * towers + kNumbersOfRequest) + 4; }

TEST(PlannedStep, CountsTheBytesToEachOtherProcess) {
  for (const ProcessPlace place : {ProcessPlace{0, 4}, ProcessPlace{2, 4}}) {
    const PlannedStep step = planned(place, "CPU", 2);
    const std::vector<std::int64_t> pieces = piece_sizes(even_cuts(kGradients, 4));
    ASSERT_EQ(step.messages.size(), 4u);
    const std::int64_t own = pieces[static_cast<std::size_t>(place.rank)];
    for (int r = 0; r < 4; ++r) {
      const auto& [sent, received] = step.messages[static_cast<std::size_t>(r)];
      const std::int64_t theirs = pieces[static_cast<std::size_t>(r)];
      // A process sends r a piece of its sum, and the piece that it has added.
      EXPECT_EQ(sent, r == place.rank ? 0 : 8 * (theirs + own) + bytes_of_values(2));
      EXPECT_EQ(received, sent) << "towers are aligned, so each has one covering node";
    }
  }
}

// Values go to the three ranks before it, and then those of four ranks to the rank four before.
TEST(PlannedStep, SumsWithinHostsBeforeItSendsToOthers) {
  const PlannedStep step = planned({0, 8}, "CPU", 2, "collective", 2);
  const std::int64_t values = bytes_of_values(2), half = even_cuts(kGradients, 2)[1];
  const auto sent = [&](std::size_t rank) { return step.messages[rank].sent; };
  EXPECT_EQ(sent(1), 8 * kGradients) << "the half that the other adds, and the sum of its own";
  EXPECT_EQ(sent(6), 8 * half + values) << "its half is one piece, which rank 6 adds";
  EXPECT_EQ(sent(4), 4 * values);
  for (const std::size_t other : {5u, 7u}) EXPECT_EQ(sent(other), values);
  for (const std::size_t other : {2u, 3u}) EXPECT_EQ(sent(other), 0);
}

TEST(PlannedStep, NumbersTowersOverAllProcessesAndCountsLaunches) {
  const PlannedStep step = planned({2, 4}, "CPU", 2);
  ASSERT_EQ(step.devices.size(), 2u);
  EXPECT_EQ(step.devices[0].tower, 4);
  EXPECT_EQ(step.devices[1].tower, 5);
  EXPECT_EQ(step.devices[1].use.device.str(), "/job:worker/replica:0/task:2/device:CPU:1");
  for (const PlannedStep::OnDevice& device : step.devices) {
    EXPECT_GT(device.launches, 5);
    EXPECT_GT(device.use.peak_bytes, 0);
  }
  EXPECT_GT(step.links.size(), 0u);
}

PlannedStep::Messages with_all(const PlannedStep& step) {
  std::vector<int> all = step.others(true);
  const std::vector<int> elsewhere = step.others(false);
  all.insert(all.end(), elsewhere.begin(), elsewhere.end());
  return step.messages_with(all);
}

// GPUs are declared. Their sums go from GPU to GPU, in pieces that are padded to one size. Only
// losses come to the host.
TEST(PlannedStep, OfGpusSendsFromGpuToGpu) {
  const PlannedStep step = planned({0, 128}, "GPU", 8);
  const std::int64_t piece = even_unit(128) / 128;  // larger than all gradients
  const std::int64_t sums = 127 * 8 * 2 * piece;
  EXPECT_EQ(with_all(step).sent, sums + 127 * bytes_of_values(8));
  for (const PlannedStep::Link& link : step.links)
    EXPECT_LE(link.from.is_gpu() && !link.to.is_gpu() ? link.bytes : 0, 64);
  const std::string text = to_text(step);
  EXPECT_THAT(text,
              HasSubstr("this is the plan of rank 0 of 128 processes, each on a host of its"));
  EXPECT_THAT(text, HasSubstr("GPU:7: tower 7, "));
  EXPECT_THAT(text, HasSubstr("between hosts, a step: rank 0 sends "));
  EXPECT_THAT(text, HasSubstr("to each of 127 others "));
}

TEST(PlannedStep, TellsProcessesOfItsHostFromThoseOfOthers) {
  const PlannedStep alone = planned({0, 6}, "CPU", 1);
  const PlannedStep step = planned({0, 6}, "CPU", 1, "collective", 2);
  EXPECT_EQ(step.hosts, (std::vector{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(step.others(true), std::vector{1});
  EXPECT_EQ(step.others(false), (std::vector{2, 3, 4, 5}));
  EXPECT_EQ(with_all(step).sent, with_all(alone).sent);
  const JsonValue json = to_json(step);
  EXPECT_EQ(json.at("with_processes_of_host").at("sent_bytes").integer(), step.messages[1].sent);
  EXPECT_EQ(json.at("between_hosts").at("links").items().size(), 4u);
  const std::string text = to_text(step);
  EXPECT_THAT(text, HasSubstr("rank 0 of 6 processes, 2 of them on its host"));
  EXPECT_THAT(text, HasSubstr("within the host, a step: rank 0 sends "));
  EXPECT_THAT(text, HasSubstr("to each of 4 others "));
}

TEST(PlannedStep, OfMpiKnowsWhatIsSummedAndNotItsWay) {
  const PlannedStep step = planned({0, 2}, "CPU", 1, "mpi");
  EXPECT_EQ(step.summed, 8 * kGradients);
  EXPECT_EQ(with_all(step).sent, bytes_of_values(1));
}

TEST(PlannedStep, OfOneProcessHasNoMessages) {
  const JsonValue json = to_json(planned({}, "CPU", 2));
  EXPECT_EQ(json.at("processes").integer(), 1);
  EXPECT_EQ(json.at("devices").items().size(), 2u);
  EXPECT_EQ(json.at("between_hosts").at("sent_bytes").integer(), 0);
  EXPECT_EQ(json.at("between_hosts").at("links").items().size(), 0u);
}

TEST(PlannedStep, NeedsADryRunAndARankThatThereIs) {
  EXPECT_THAT(message_of<InvalidArgument>([] {
                process_place({.planned_place = {0, 2}});
              }),
              HasSubstr("2 processes can be planned by a dry run alone"));
  EXPECT_THAT(message_of<InvalidArgument>([] {
                process_place({.dry_run = true, .planned_place = {2, 2}});
              }),
              HasSubstr("there is no rank 2 of 2"));
}

// Each tower's device computes all gradients, and updates follow them.
TEST(PlannedWork, IsThatOfOneDevice) {
  for (const int devices : {1, 2}) {
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd(0.1),
                           .batch_size = 4,
                           .session = {.dry_run = true}};
    options.devices.clear();
    for (int d = 0; d < devices; ++d) options.devices.push_back(DeviceSpec::local("GPU", d));
    const auto data = smooth_data(64);
    Trainer trainer(find_trainer("replicated"), options, *data);
    const std::optional<TrainingWorkload> work = planned_work(trainer.built());
    ASSERT_TRUE(work);
    EXPECT_EQ(work->parameters(), kGradients);
    EXPECT_EQ(work->batch, 4);
    double flops = 0;
    int after = 0;
    for (const WorkloadLaunch& launch : work->launches) {
      flops += launch.flops;
      after += launch.after_sums;
      EXPECT_TRUE(!launch.after_sums || launch.parameters == 0) << launch.name;
    }
    EXPECT_GE(flops, 2 * 4 * (4 * 5 + 5)) << "at least the forward pass";
    EXPECT_GT(after, 0);
  }
}

}  // namespace planned_step_test
}  // namespace belfry
