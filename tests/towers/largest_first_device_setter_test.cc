#include "belfry/towers/largest_first_device_setter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/least_loaded_device_setter.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace largest_first_device_setter_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// The planned devices of v0, v1, ... of these sizes.
std::vector<std::string> planned(const std::vector<std::int64_t>& bytes, int devices) {
  std::vector<VariableSize> sizes;
  for (std::size_t i = 0; i < bytes.size(); ++i) sizes.push_back({cat("v", i), bytes[i]});
  const LargestFirstDeviceSetter setter("/cpu:0", cpus(devices), sizes);
  std::vector<std::string> homes;
  for (const VariableSize& v : sizes) homes.push_back(setter.plan().at(v.name).str().substr(12));
  return homes;
}

TEST(LargestFirstDeviceSetter, PlansTheLargestFirstAndTheFirstOfEqualOnes) {
  EXPECT_THAT(planned({10, 40, 60, 50, 100}, 2), ElementsAre("1", "0", "1", "1", "0"));
  EXPECT_THAT(planned({4, 4, 4, 4}, 3), ElementsAre("0", "1", "2", "0"));
  EXPECT_THAT(planned({0, 0, 7}, 2), ElementsAre("1", "1", "0")) << "nothing adds no load";
}

void model(Graph& graph) {
  variable(graph, "fc0/W", {10});
  variable(graph, "fc0/b", {10}, {.dtype = DType::kF64});
  variable(graph, "fc1/W", {40});
  variable(graph, "head/W", {100});  // the large one comes last
}

TEST(LargestFirstDeviceSetter, BalancesWhatGoesWrongInOrderOfCreation) {
  Graph greedy, dry, graph;
  LeastLoadedDeviceSetter least("/cpu:0", cpus(2));
  {
    DeviceScope on(greedy, least);
    model(greedy);
  }
  model(dry);
  LargestFirstDeviceSetter largest("/cpu:0", cpus(2), variable_sizes(dry));
  {
    DeviceScope on(graph, largest);
    model(graph);
  }
  // Elements: 10 | 10, then 40 on cpu:0 and 100 on cpu:1.
  EXPECT_EQ(balance_report(greedy).devices[1].bytes, 80 + 400);
  // 400 | 160 + 80 + 40.
  const BalanceReport report = balance_report(graph);
  EXPECT_EQ(report.devices[0].bytes, 400);
  EXPECT_EQ(report.devices[1].bytes, 280);
  EXPECT_LT(report.imbalance, balance_report(greedy).imbalance);
  EXPECT_THAT(largest.bytes(), ElementsAre(400, 280));
  EXPECT_THAT(largest.load(), ElementsAre(Pair("/device:CPU:0", 100), Pair("/device:CPU:1", 60)));
}

TEST(LargestFirstDeviceSetter, PutsWhatWasNotPlannedWhereTheFewestBytesAre) {
  Graph graph;
  const VariableSize sizes[] = {{"w", 100}};
  LargestFirstDeviceSetter setter("/cpu:0", cpus(2), sizes);
  DeviceScope on(graph, setter);
  EXPECT_EQ(variable(graph, "new", {10}).device(), cpu(1));
  EXPECT_THAT(setter.bytes(), ElementsAre(100, 40));
}

TEST(LargestFirstDeviceSetter, LeavesOtherNodesToTheWorkerAndInnerScopes) {
  Graph graph;
  const VariableSize sizes[] = {{"w", 100}};
  LargestFirstDeviceSetter setter("/gpu:1", cpus(2), sizes);
  DeviceScope on(graph, setter);
  EXPECT_EQ(iota(graph, {2}).device().str(), "/device:GPU:1");
  DeviceScope inner(graph, "/job:x");
  EXPECT_EQ(variable(graph, "w", {25}).device().str(), "/job:x");
  EXPECT_TRUE(setter.load().empty());
  EXPECT_EQ(setter.str(), "LargestFirstDeviceSetter-/device:GPU:1");
}

TEST(LargestFirstDeviceSetter, PlacesTheSharedVariablesOfTowers) {
  Graph dry, graph;
  model(dry);
  const std::vector<VariableSize> sizes = variable_sizes(dry);
  const auto towers = replicate(
      graph, cpus(2),
      [&](const DeviceSpec& worker) {
        return std::make_unique<LargestFirstDeviceSetter>(worker, cpus(2), sizes);
      },
      [&](Tower& tower) {
        model(graph);
        for (const char* name : {"fc0/W", "fc0/b", "fc1/W", "head/W"})
          EXPECT_EQ(identity(graph.stored_variable(name)).device(), cpu(tower.index()));
      });
  std::vector<DeviceSpec> homes;
  for (const Variable& v : towers[1].variables) homes.push_back(v.device());
  EXPECT_THAT(homes, ElementsAre(cpu(1), cpu(1), cpu(1), cpu(0)));
}

TEST(LargestFirstDeviceSetter, RefusesNoDevicesAndNamesTwice) {
  EXPECT_THROW(LargestFirstDeviceSetter("/cpu:0", {}, {}), InvalidArgument);
  const VariableSize twice[] = {{"w", 1}, {"w", 2}};
  EXPECT_THAT(message_of([&] { LargestFirstDeviceSetter("/cpu:0", cpus(1), twice); }),
              HasSubstr("'w' is to be planned twice"));
}

}  // namespace largest_first_device_setter_test
}  // namespace belfry
