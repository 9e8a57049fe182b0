// Simulated steps and sums against closed forms.
#include "belfry/allreduce/simulation/simulated_step.h"

#include <cmath>
#include <numbers>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/simulation/goodput.h"
#include "belfry/framework/base/error.h"

namespace belfry {
namespace simulated_step_test {

using testing::DoubleNear;
using testing::HasSubstr;

constexpr double kLatency = 3e-6, kRate = 100e9, kNetworkLatency = 20e-6, kNetworkRate = 50e9;
constexpr double kFlops = 1e12;

ClusterDescription cluster_of(int per_host) {
  return {.name = "test",
          .flops = {{"f32", kFlops}},
          .devices_per_host = per_host,
          .link = {kLatency, LinkRate(kRate)},
          .network = {kNetworkLatency, LinkRate(kNetworkRate)}};
}

// Layers of 1 ms forward and 2 ms backward for one sample.
TrainingWorkload layers_of(std::vector<double> parameters) {
  TrainingWorkload work{.name = "layers", .sample = "image"};
  for (const double count : parameters) work.layers.push_back({"layer", count, kFlops * 1e-3, 0});
  return work;
}

double seconds_of(const TrainingWorkload& work, const ClusterDescription& cluster, int devices,
                  const SimulatedTraining& training = {}) {
  return simulate_step(work, cluster, training, devices).seconds;
}

TEST(AllReduceSeconds, OfARingAreAlphaAndBeta) {
  for (const int n : {2, 3, 8, 64})
    for (const double bytes : {4.0, 1e6, 1e9})
      EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster_of(64), {n, 64}, bytes, SumAlgorithm::kRing),
                       2 * (n - 1) * kLatency + bytes * 2 * (n - 1) / n / kRate);
  EXPECT_EQ(all_reduce_seconds(cluster_of(64), {1, 64}, 1e9), 0);
}

TEST(AllReduceSeconds, NeedHostsWithSoManyDevices) {
  EXPECT_THROW(all_reduce_seconds(cluster_of(1), {8, 8}, 1e6), InvalidArgument);
}

TEST(SimulatedStep, RefusesNumbersWithoutEnd) {
  const TrainingWorkload work{.name = "w", .layers = {{"huge", 1, 1e308, 0}}};
  EXPECT_THROW(simulate_step(work, cluster_of(1), {.batch = 100}, 1), InvalidArgument);
}

TEST(AllReduceSeconds, BetweenHostsAreThoseOfTheSlowestLink) {
  const ClusterDescription cluster = cluster_of(4);
  const ClusterPart part{16, 4};
  EXPECT_DOUBLE_EQ(
      all_reduce_seconds(cluster, part, 1e9, SumAlgorithm::kRing),
      (2 * 15 - 2 * 4) * kLatency + 2 * 4 * kNetworkLatency + 1e9 * 2 * 15 / 16 / kNetworkRate);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {2, 1}, 1e9, SumAlgorithm::kRing),
                   2 * kNetworkLatency + 1e9 / kNetworkRate);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, part, 1e9, SumAlgorithm::kTree),
                   2 * 3 * kLatency + 2 * 2 * kNetworkLatency + 1e9 * 2 * 15 / 16 / kNetworkRate);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, part, 1e9, SumAlgorithm::kHierarchical),
                   2 * 3 * kLatency + 1e9 * 2 * 3 / 4 / kRate + 2 * 3 * kNetworkLatency +
                       1e9 * 2 * 3 / 4 / kNetworkRate);
}

TEST(AllReduceSeconds, OfSeveralIslandsCrossTheirBridges) {
  ClusterDescription cluster = cluster_of(8);
  cluster.devices_per_island = 4;
  cluster.bridge_rate = LinkRate(kRate / 10);
  for (const auto& [devices, rate] : {std::pair(4, kRate), std::pair(5, kRate / 10)})
    EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {devices, 8}, 1e9, SumAlgorithm::kRing),
                     2 * (devices - 1) * kLatency + 1e9 * 2 * (devices - 1) / devices / rate);
}

TEST(AllReduceSeconds, TakeTheFastestWayUnlessOneIsNamed) {
  const ClusterDescription cluster = cluster_of(4);
  for (const double bytes : {4.0, 1e6, 1e9}) {
    const ClusterPart part{256, 4};
    const double fastest = all_reduce_seconds(cluster, part, bytes);
    double least = 1e9;
    for (const SumAlgorithm way :
         {SumAlgorithm::kRing, SumAlgorithm::kTree, SumAlgorithm::kHierarchical})
      least = std::min(least, all_reduce_seconds(cluster, part, bytes, way));
    EXPECT_EQ(fastest, least);
  }
}

// Two samples: 2 ms forward and 4 ms of gradients, then sums of 1e8 elements, and 3 ms of updates.
TEST(SimulatedStep, RunsTheLaunchesOfAPlan) {
  TrainingWorkload work{
      .name = "plan",
      .launches = {{.name = "forward", .flops = kFlops * 2e-3},
                   {.name = "gradient", .parameters = 1e8, .flops = kFlops * 4e-3},
                   {.name = "update", .after_sums = true, .flops = kFlops * 3e-3}},
      .batch = 2,
      .device_bytes = 7};
  const ClusterDescription cluster = cluster_of(4);
  const double sum = all_reduce_seconds(cluster, {4, 4}, 4e8);
  EXPECT_NEAR(seconds_of(work, cluster, 4, {.batch = 2}), 9e-3 + sum, 1e-12);
  EXPECT_NEAR(seconds_of(work, cluster, 4), 6e-3 + sum, 1e-12) << "half of the batch";
  EXPECT_EQ(simulate_step(work, cluster, {}, 1).device_bytes, 7);
  for (WorkloadLaunch& launch : work.launches) launch.seconds = 5e-3;
  EXPECT_NEAR(seconds_of(work, cluster, 4, {.batch = 2}), 15e-3 + sum, 1e-12);
}

TEST(AllReduceSeconds, OfSwitchesNeedOne) {
  ClusterDescription cluster = cluster_of(8);
  EXPECT_THROW(all_reduce_seconds(cluster, {8, 8}, 1e6, SumAlgorithm::kSwitch), InvalidArgument);
  cluster.link.switch_rate = LinkRate(2 * kRate);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(cluster, {8, 8}, 1e9, SumAlgorithm::kSwitch),
                   2 * kLatency + 1e9 / (2 * kRate));
}

TEST(AllReduceSeconds, OfHostsWithoutANetworkAreRefused) {
  ClusterDescription cluster = cluster_of(4);
  cluster.network = {};
  EXPECT_GT(all_reduce_seconds(cluster, {4, 4}, 1e6), 0);
  EXPECT_THROW(all_reduce_seconds(cluster, {5, 4}, 1e6), InvalidArgument);
}

TEST(LinkRate, IsStraightBetweenPointsOnLogarithmicAxes) {
  const LinkRate rate({{1e3, 1}, {1e5, 100}});
  EXPECT_NEAR(rate.at(1e4), 10, 1e-9);
  EXPECT_EQ(rate.at(1), 1);
  EXPECT_EQ(rate.at(1e9), 100);
}

TEST(SimulatedStep, OfOneDeviceIsItsArithmetic) {
  EXPECT_NEAR(seconds_of(layers_of({1e6, 1e6, 1e6}), cluster_of(8), 1), 9e-3, 1e-12);
  EXPECT_NEAR(seconds_of(layers_of({1e6}), cluster_of(8), 1, {.batch = 4, .accumulation = 3}),
              36e-3, 1e-12);
  // 2 layers of 3 kernels each.
  EXPECT_NEAR(seconds_of(layers_of({1e6, 1e6}), cluster_of(8), 1, {.batch = 4, .kernel = 1e-4}),
              24e-3 + 6e-4, 1e-12);
}

TEST(SimulatedStep, HidesSumsThatEndBeforeTheArithmetic) {
  // The last layer's gradients are there 6 ms before the end, and nothing else is summed.
  const TrainingWorkload work = layers_of({0, 0, 0, 1e8});
  const ClusterDescription cluster = cluster_of(8);
  const double sum = all_reduce_seconds(cluster, {8, 8}, 4e8);
  ASSERT_GT(sum, 6e-3);
  EXPECT_NEAR(seconds_of(work, cluster, 8), 6e-3 + sum, 1e-12);  // 4 forward, 2 backward
  const TrainingWorkload small = layers_of({0, 0, 0, 1e7});
  const SimulatedStep hidden = simulate_step(small, cluster, {}, 8);
  EXPECT_NEAR(hidden.seconds, 12e-3, 1e-12);
  EXPECT_NEAR(hidden.hidden_share(), 1, 1e-12);
  EXPECT_EQ(hidden.bound_by(), StepRunner::kCompute);
  const SimulatedStep shown = simulate_step(small, cluster, {.overlap = false}, 8);
  EXPECT_NEAR(shown.seconds, 12e-3 + all_reduce_seconds(cluster, {8, 8}, 4e7), 1e-12);
  EXPECT_NEAR(shown.hidden_share(), 0, 1e-12);
}

TEST(SimulatedStep, FetchesParametersFromServersOnceAllAreUpdated) {
  ClusterDescription cluster = cluster_of(2);
  cluster.feed_rate = 10e9;
  cluster.devices_per_feed = 2;
  const auto way = [](double bytes, double share) {
    return 2 * bytes / 10e9 + kNetworkLatency + share * bytes / kNetworkRate;
  };
  const auto seconds = [&](int servers) {
    return seconds_of(layers_of({1, 0, 0, 1e6}), cluster, 8,
                      {.bucket_bytes = 0, .algorithm = SumAlgorithm::kServers, .servers = servers});
  };
  // The gradient of the last layer is on its way during the backward pass. That of the first one,
  // and all parameters, come after it.
  for (const auto& [servers, share] : {std::pair(0, 0.75), std::pair(1, 3.0), std::pair(3, 1.0)})
    EXPECT_NEAR(seconds(servers), 12e-3 + way(4, share) + way(4e6 + 4, share), 1e-12);
  EXPECT_NEAR(all_reduce_seconds(cluster, {8, 2}, 4e6, SumAlgorithm::kHost), 2 * way(4e6, 0.75),
              1e-12);
}

TEST(SimulatedStep, SumsInBucketsPayFewerLatencies) {
  const TrainingWorkload work = layers_of({1e3, 1e3, 1e3, 1e3});
  const ClusterDescription cluster = cluster_of(8);
  const auto sums = [&](double bucket) {
    return simulate_step(work, cluster, {.bucket_bytes = bucket}, 8).sums;
  };
  EXPECT_NEAR(sums(1e9), all_reduce_seconds(cluster, {8, 8}, 16e3), 1e-12);
  EXPECT_NEAR(sums(0), 4 * all_reduce_seconds(cluster, {8, 8}, 4e3), 1e-12);
}

TEST(SimulatedStep, IsBoundByWhatTakesLongest) {
  const TrainingWorkload work = layers_of({1e3, 1e3});
  ClusterDescription slow_host = cluster_of(8);
  slow_host.launch = 5e-3;  // 7 launches
  const SimulatedStep launching = simulate_step(work, slow_host, {}, 1);
  EXPECT_NEAR(launching.seconds, 35e-3, 1e-9);
  EXPECT_EQ(launching.bound_by(), StepRunner::kHost);
  ClusterDescription slow_input = cluster_of(8);
  slow_input.input_rate = 100;  // of a host, for 8 devices
  const SimulatedStep preparing = simulate_step(work, slow_input, {}, 8);
  EXPECT_NEAR(preparing.seconds, 80e-3, 1e-9);
  EXPECT_EQ(preparing.bound_by(), StepRunner::kInput);
}

TEST(SimulatedStep, WaitsForTheSlowestDevice) {
  const TrainingWorkload work = layers_of({0});
  const SimulatedStep step = simulate_step(work, cluster_of(8), {.jitter = 0.02}, 8);
  EXPECT_NEAR(step.seconds, 3e-3 * (1 + 0.02 * expected_largest(8)), 1e-12);
  EXPECT_NEAR(step.stragglers, 3e-3 * 0.02 * expected_largest(8), 1e-12);
}

TEST(SimulatedStep, ComputesSlowlyBesideOtherDevicesOfItsHost) {
  ClusterDescription cluster = cluster_of(2);
  cluster.crowding = 1.5;
  const TrainingWorkload work = layers_of({0});
  EXPECT_NEAR(seconds_of(work, cluster, 1), 3e-3, 1e-12);
  EXPECT_NEAR(seconds_of(work, cluster, 2), 4.5e-3, 1e-12);
  EXPECT_NEAR(seconds_of(work, cluster, 2, {.per_host = 1}), 3e-3, 1e-12) << "two hosts";
}

TEST(SimulatedStep, SpendsItsTimeOnTheCriticalPath) {
  ClusterDescription cluster = cluster_of(4);
  cluster.launch = 1e-5;
  const SimulatedStep step = simulate_step(layers_of({1e6, 5e7, 1e6}), cluster, {}, 64);
  double total = 0;
  for (const double seconds : step.critical) total += seconds;
  EXPECT_NEAR(total, step.seconds, 1e-12);
  EXPECT_EQ(step.hosts, 16);
}

TEST(SimulatedStep, IsCalibratedByAMeasurement) {
  const TrainingWorkload work = layers_of({1e6, 1e7});
  const ClusterDescription cluster = cluster_of(8);
  SimulatedTraining training{.batch = 8};
  training.slowness = calibrated_slowness(work, cluster, training, 8, 900);
  EXPECT_NEAR(simulate_step(work, cluster, training, 8).samples_per_second, 900, 1e-4);
  EXPECT_THROW(calibrated_slowness(work, cluster, training, 8, 1e12), InvalidArgument);
}

TEST(SimulatedStep, NeedsAPrecisionOfTheMachine) {
  try {
    seconds_of(layers_of({1}), cluster_of(8), 1, {.precision = "f16"});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("no \"tflops\" for f16 (there are: f32)"));
  }
}

TEST(Goodput, OfYoungAndDaly) {
  const FaultCosts rare{.between = 1e8, .save = 10};
  EXPECT_DOUBLE_EQ(young_interval(rare), std::sqrt(2 * 10 * 1e8));
  EXPECT_NEAR(daly_interval(rare) / young_interval(rare), 1, 1e-3);
  // The first order of what is lost: one save per interval, half an interval per fault.
  EXPECT_NEAR(1 - goodput(rare, young_interval(rare)), std::sqrt(2 * 10 / 1e8), 1e-6);
  const FaultCosts often{.between = 3600, .save = 60, .restart = 300};
  const double best = daly_interval(often);
  for (const double factor : {0.5, 0.8, 1.25, 2.0})
    EXPECT_LT(goodput(often, factor * best), goodput(often, best));
  EXPECT_EQ(daly_interval({.between = 10, .save = 100}), 10);
}

TEST(ExpectedLargest, OfTwoAndThree) {
  EXPECT_EQ(expected_largest(1), 0);
  EXPECT_NEAR(expected_largest(2), 1 / std::sqrt(std::numbers::pi), 1e-9);
  EXPECT_NEAR(expected_largest(3), 1.5 / std::sqrt(std::numbers::pi), 1e-9);
  EXPECT_GT(expected_largest(4096), expected_largest(1024));
}

}  // namespace simulated_step_test
}  // namespace belfry
