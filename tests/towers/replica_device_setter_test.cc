#include "belfry/towers/replica_device_setter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/tests/towers/towers_test_support.h"
#include "belfry/towers/replicate.h"

namespace belfry {
namespace replica_device_setter_test {

using testing::ElementsAre;
using testing::Pair;

class ReplicaDeviceSetterTest : public testing::Test {
 protected:
  // The device of a new variable under `inner`.
  std::string placed(const DeviceSpec& inner = {}) {
    DeviceScope on(graph, inner);
    return variable(graph, cat("v", graph.size()), {3}).device().str();
  }
  Graph graph;
};

TEST_F(ReplicaDeviceSetterTest, DealsVariablesToTheTasksOfTheJobInTurn) {
  auto setter = replica_device_setter({.ps_tasks = 2});
  DeviceScope on(graph, setter);
  EXPECT_EQ(placed(), "/job:ps/task:0");
  EXPECT_EQ(placed(), "/job:ps/task:1");
  EXPECT_EQ(placed(), "/job:ps/task:0");
  EXPECT_THAT(setter.load(), ElementsAre(Pair("/job:ps/task:0", 6), Pair("/job:ps/task:1", 3)));
}

TEST_F(ReplicaDeviceSetterTest, PutsEverythingElseOnTheWorker) {
  auto setter = replica_device_setter({.ps_tasks = 2});
  DeviceScope on(graph, setter);
  EXPECT_EQ(iota(graph, {2}).device().str(), "/job:worker");
  EXPECT_TRUE(setter.load().empty());
}

TEST_F(ReplicaDeviceSetterTest, FillsInWhatInnerScopesLeaveOpen) {
  auto setter = replica_device_setter({.ps_tasks = 3});
  DeviceScope on(graph, setter);
  EXPECT_EQ(placed("/gpu:1"), "/job:ps/task:0/device:GPU:1");
  EXPECT_EQ(placed("/job:ps/task:2"), "/job:ps/task:2") << "though task 1 was its turn";
  EXPECT_EQ(placed(), "/job:ps/task:2");
  DeviceScope inner(graph, "/cpu:0");
  EXPECT_EQ(iota(graph, {2}).device().str(), "/job:worker/device:CPU:0");
}

TEST_F(ReplicaDeviceSetterTest, SetsNoTaskForVariablesOfAnotherJob) {
  auto setter = replica_device_setter({.ps_tasks = 2});
  DeviceScope on(graph, setter);
  EXPECT_EQ(placed("/job:chief"), "/job:chief");
  EXPECT_EQ(placed(), "/job:ps/task:0");
}

TEST_F(ReplicaDeviceSetterTest, SetsNoTaskWithoutAJob) {
  auto setter =
      replica_device_setter({.ps_tasks = 1, .ps_device = "/cpu:0", .worker_device = "/gpu:1"});
  DeviceScope on(graph, setter);
  EXPECT_EQ(placed(), "/device:CPU:0");
  EXPECT_EQ(iota(graph, {2}).device().str(), "/device:GPU:1");
  EXPECT_EQ(setter.str(), "ReplicaDeviceSetter-/device:GPU:1");
}

TEST_F(ReplicaDeviceSetterTest, ChangesNothingWithoutParameterServers) {
  auto setter = replica_device_setter({});
  DeviceScope on(graph, setter);
  EXPECT_EQ(placed(), "");
  EXPECT_EQ(placed("/cpu:1"), "/device:CPU:1");
  EXPECT_EQ(iota(graph, {2}).device().str(), "");
  EXPECT_THROW(replica_device_setter({.ps_tasks = -1}), InvalidArgument);
}

TEST_F(ReplicaDeviceSetterTest, LeavesTheRestToOuterScopes) {
  DeviceScope outer(graph, "/replica:1");
  auto setter = replica_device_setter({.ps_tasks = 1});
  DeviceScope on(graph, setter);
  EXPECT_EQ(placed(), "/job:ps/replica:1/task:0");
}

// SyncMultiGPUParameterServerBuilder with ps_device = 'cpu'.
TEST_F(ReplicaDeviceSetterTest, ServesReplicate) {
  const std::vector<DeviceSpec> gpus{"/gpu:0", "/gpu:1"};
  const auto towers = replicate(
      graph, gpus,
      [](const DeviceSpec& worker) {
        return std::make_unique<ReplicaDeviceSetter>(
            ReplicaDeviceOptions{.ps_tasks = 1, .ps_device = "/cpu:0", .worker_device = worker});
      },
      [&](Tower& tower) {
        const Output y = identity(variable(graph, "w", {3}));
        EXPECT_EQ(iota(graph, {2}).device(), gpus[tower.index()]);
        EXPECT_TRUE(y);
      });
  EXPECT_EQ(towers[0].variables, towers[1].variables);
  EXPECT_EQ(towers[1].variables[0].device().str(), "/device:CPU:0");
}

}  // namespace replica_device_setter_test
}  // namespace belfry
