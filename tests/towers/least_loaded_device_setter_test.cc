#include "belfry/towers/least_loaded_device_setter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/towers/towers_test_support.h"

namespace belfry {
namespace least_loaded_device_setter_test {

using testing::ElementsAre;

std::vector<DeviceSpec> place(DeviceSetter& setter, const std::vector<std::int64_t>& sizes) {
  Graph graph;
  DeviceScope on(graph, setter);
  std::vector<DeviceSpec> devices;
  for (const std::int64_t size : sizes)
    devices.push_back(
        variable(graph, cat("v", devices.size()), size == 1 ? Shape{} : Shape{size}).device());
  return devices;
}

TEST(LeastLoadedDeviceSetter, TakesTheFirstDeviceWithTheFewestElements) {
  LeastLoadedDeviceSetter setter("/gpu:0", {"/gpu:0", "/gpu:1"});
  EXPECT_THAT(place(setter, {100, 50, 60, 40, 10}),
              ElementsAre("/gpu:0", "/gpu:1", "/gpu:1", "/gpu:0", "/gpu:1"));
  EXPECT_THAT(setter.loads(), ElementsAre(140, 120));
}

TEST(LeastLoadedDeviceSetter, BreaksTiesByTheLowestIndex) {
  LeastLoadedDeviceSetter setter("/cpu:0", {"/cpu:0", "/cpu:1", "/cpu:2"});
  EXPECT_THAT(place(setter, {4, 4, 4, 4}), ElementsAre("/cpu:0", "/cpu:1", "/cpu:2", "/cpu:0"));
}

TEST(LeastLoadedDeviceSetter, CountsAScalarAsOneElementAndRemembersLoads) {
  LeastLoadedDeviceSetter setter("/cpu:0", {"/cpu:0", "/cpu:1"});
  place(setter, {1});
  EXPECT_THAT(setter.loads(), ElementsAre(1, 0));
  EXPECT_THAT(place(setter, {5}), ElementsAre("/cpu:1"));
}

TEST(LeastLoadedDeviceSetter, StacksVariablesWithoutElements) {
  LeastLoadedDeviceSetter setter("/cpu:0", {"/cpu:0", "/cpu:1"});
  EXPECT_THAT(place(setter, {0, 0, 3, 0}), ElementsAre("/cpu:0", "/cpu:0", "/cpu:0", "/cpu:1"));
  EXPECT_THAT(setter.loads(), ElementsAre(3, 0));
}

TEST(LeastLoadedDeviceSetter, PutsEverythingElseOnTheWorker) {
  Graph graph;
  LeastLoadedDeviceSetter setter("gpu:1", {"/cpu:0"});
  DeviceScope on(graph, setter);
  EXPECT_EQ(iota(graph, {2}).device().str(), "/device:GPU:1");
  EXPECT_THAT(setter.loads(), ElementsAre(0));
}

TEST(LeastLoadedDeviceSetter, LeavesNodesAloneThatInnerScopesPlaced) {
  Graph graph;
  LeastLoadedDeviceSetter setter("/gpu:0", {"/gpu:0", "/gpu:1"});
  DeviceScope on(graph, setter);
  DeviceScope inner(graph, "/job:x");
  EXPECT_EQ(variable(graph, "v", {7}).device().str(), "/job:x");
  EXPECT_THAT(setter.loads(), ElementsAre(0, 0));
}

TEST(LeastLoadedDeviceSetter, CountsNoLoadForWhatStandsBesideAVariable) {
  Graph graph;
  LeastLoadedDeviceSetter setter("/cpu:0", {"/cpu:0", "/cpu:1"});
  DeviceScope on(graph, setter);
  const Variable v = variable(graph, "v", {10});
  ColocateWith beside(v.ref());
  EXPECT_EQ(variable(graph, "v/slot", {10}).device(), v.device());
  EXPECT_THAT(setter.loads(), ElementsAre(10, 0));
}

TEST(LeastLoadedDeviceSetter, VariablesKeepItsLoadsAsTheyWere) {
  Graph graph;
  LeastLoadedDeviceSetter setter("/gpu:0", {"/gpu:0", "/gpu:1"});
  DeviceScope on(graph, setter);
  variable(graph, "v", {7});
  const Variable w = variable(graph, "w", {5});
  const auto reasons = w.node().request().reasons;
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(reasons[0].what(), "setter LeastLoadedDeviceSetter-/device:GPU:0");
  ASSERT_TRUE(reasons[0].load);
  EXPECT_THAT(*reasons[0].load,
              ElementsAre(std::pair("/device:GPU:0", 7), std::pair("/device:GPU:1", 0)));
  EXPECT_EQ(reasons[0].result.str(), "/device:GPU:1");
  EXPECT_EQ(setter.load().at("/device:GPU:1"), 5);
}

TEST(LeastLoadedDeviceSetter, NamesItsWorker) {
  EXPECT_EQ(LeastLoadedDeviceSetter("/gpu:0", {"/cpu:0"}).str(),
            "LeastLoadedDeviceSetter-/device:GPU:0");
}

TEST(LeastLoadedDeviceSetter, NeedsADevice) {
  EXPECT_THROW(LeastLoadedDeviceSetter("/gpu:0", {}), InvalidArgument);
}

}  // namespace least_loaded_device_setter_test
}  // namespace belfry
