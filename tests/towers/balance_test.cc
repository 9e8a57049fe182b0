#include "belfry/towers/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/core_ops/identity.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace balance_test {

void place(Graph& graph, const char* name, Shape shape, const DeviceSpec& device,
           DType dtype = DType::kF32) {
  DeviceScope on(graph, device);
  variable(graph, name, std::move(shape), {.dtype = dtype});
}

TEST(BalanceReport, CountsBytesPerDevice) {
  Graph graph;
  place(graph, "a", {100}, "/gpu:10");
  place(graph, "b", {10, 5}, "/gpu:2", DType::kF64);
  place(graph, "c", {50}, "/gpu:10");
  const BalanceReport report = balance_report(graph);
  ASSERT_EQ(report.devices.size(), 2U);
  EXPECT_EQ(report.devices[0].device.str(), "/device:GPU:2");
  EXPECT_EQ(report.devices[0].bytes, 400);
  EXPECT_EQ(report.devices[1].bytes, 600);
  EXPECT_EQ(report.devices[1].variables, 2);
  EXPECT_EQ(report.bytes, 1000);
  EXPECT_EQ(report.variables, 3);
  EXPECT_DOUBLE_EQ(report.imbalance, 1.2);
  EXPECT_EQ(report.str(),
            "3 variables, 1000 bytes on 2 devices, imbalance 1.2\n"
            "  /device:GPU:2: 400 bytes in 1 variables\n"
            "  /device:GPU:10: 600 bytes in 2 variables");
}

TEST(BalanceReport, ListsDevicesThatHoldNothing) {
  Graph graph;
  place(graph, "a", {100}, "/cpu:1");
  const BalanceReport report = balance_report(graph, cpus(3));
  ASSERT_EQ(report.devices.size(), 3U);
  EXPECT_EQ(report.devices[0].bytes, 0);
  EXPECT_DOUBLE_EQ(report.imbalance, 3);
}

TEST(BalanceReport, OfNoVariablesIsBalanced) {
  Graph graph;
  EXPECT_EQ(balance_report(graph).str(), "0 variables, 0 bytes on 0 devices, imbalance 1");
  EXPECT_DOUBLE_EQ(balance_report(graph, cpus(2)).imbalance, 1);
}

TEST(BalanceReport, NamesVariablesThatAskForNoDevice) {
  Graph graph;
  place(graph, "a", {1}, {});
  EXPECT_THAT(balance_report(graph).str(),
              testing::HasSubstr("(no device requested): 4 bytes in 1 variables"));
}

// Records tell replicas, so a name does not make one.
TEST(BalanceReport, CountsReplicas) {
  Graph graph;
  replicate(graph, cpus(2), VariablePolicy::kReplicated,
            [&](Tower&) { identity(variable(graph, "tower_height", {5})); });
  const BalanceReport report = balance_report(graph, cpus(2));
  EXPECT_EQ(report.variables, 2);
  EXPECT_EQ(report.devices[0].bytes, 20);
  EXPECT_EQ(report.devices[1].bytes, 20);
  EXPECT_EQ(report.imbalance, 1);
}

}  // namespace balance_test
}  // namespace belfry
