// Plans for several GPU devices on one physical GPU.
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/placement/placement_support.h"

namespace belfry {
namespace logical_gpus_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SessionOptions gpus(int count, int logical) {
  return {.device_count = {{"GPU", count}}, .logical_gpus = logical, .dry_run = true};
}

std::vector<int> spaces(const SessionOptions& options) {
  std::vector<int> result;
  for (const auto& device : make_devices(options)) result.push_back(device->memory_space);
  return result;
}

TEST(LogicalGpus, ShareTheMemorySpaceOfTheirPhysicalOne) {
  EXPECT_THAT(spaces(gpus(4, 1)), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(spaces(gpus(4, 2)), ElementsAre(0, 1, 1, 2, 2));
  EXPECT_THAT(spaces(gpus(4, 3)), ElementsAre(0, 1, 1, 1, 2));
  EXPECT_THAT(spaces(gpus(4, 4)), ElementsAre(0, 1, 1, 1, 1));
  EXPECT_THAT(spaces(gpus(2, 1024)), ElementsAre(0, 1, 1));
}

TEST(LogicalGpus, AreOnTheVisiblePhysicalOnes) {
  SessionOptions options = gpus(8, 2);
  options.visible_devices = "2,0";
  EXPECT_THAT(spaces(options), ElementsAre(0, 1, 1, 2, 2));
  options.device_count = {{"GPU", 3}};
  EXPECT_THAT(spaces(options), ElementsAre(0, 1, 1, 2));
}

TEST(LogicalGpus, RefuseNumbersThatCannotBe) {
  for (const int logical : {0, -1, 1025})
    EXPECT_EQ(message_of<InvalidArgument>([&] { make_devices(gpus(1, logical)); }),
              cat("logical_gpus: a physical GPU can be 1 to 1024 logical ones, not ", logical));
}

TEST(LogicalGpus, AreMappedToTheirPhysicalOne) {
  const std::string gpu = "/job:localhost/replica:0/task:0/device:GPU:";
  EXPECT_EQ(device_mapping(make_devices(gpus(3, 2))),
            cat("Device mapping:\n", gpu, "0 -> declared, absent, on physical GPU 0\n", gpu,
                "1 -> declared, absent, on physical GPU 0\n", gpu, "2 -> declared, absent\n"));
}

class LogicalGpusTest : public ::testing::Test {
 protected:
  // Four logical GPUs on two physical ones.
  explicit LogicalGpusTest() : session(graph, gpus(4, 2)) {}

  Output source(const DeviceSpec& device) {
    DeviceScope on(graph, device);
    return fill(graph, {2, 3}, 1);
  }
  Fetch sum(int device, const Output& x) {
    DeviceScope on(graph, gpu(device));
    return add_n({x, x}).node();
  }
  // Devices of the nodes of an op: 0 is the CPU, 1 the first GPU.
  static std::vector<int> devices_of(const Plan& plan, const Op& op) {
    std::vector<int> devices;
    for (const PlanNode& node : plan.nodes)
      if (node.op == &op) devices.push_back(node.device());
    return devices;
  }

  Graph graph;
  Session session;
};

TEST_F(LogicalGpusTest, ReadWhatTheHostSentToTheirPhysicalOneOnce) {
  const Output x = source(cpu(0));
  const Plan& plan = *session.prepare({sum(0, x), sum(1, x), sum(2, x), sum(3, x)}).plan();
  EXPECT_THAT(devices_of(plan, kCopy), ElementsAre(1, 3));
  EXPECT_THAT(devices_of(plan, kTransfer), ElementsAre(2, 4));
  EXPECT_EQ(plan.transfers.size(), 4u) << "each is counted";
}

TEST_F(LogicalGpusTest, ReadEachOthersMemoryOnOnePhysicalOne) {
  const Output x = source(gpu(0));
  const Plan& plan = *session.prepare({sum(0, x), sum(1, x)}).plan();
  EXPECT_THAT(devices_of(plan, kCopy), ElementsAre());
  const NodeIndex alias = planned(plan, kTransfer);
  ASSERT_TRUE(alias);
  EXPECT_EQ(plan.node(alias).device(), 2);
  EXPECT_EQ(plan.buffer({alias, 0}), plan.buffer({planned(plan, x.node()), 0}));
  const Plan& apart = *session.prepare({sum(2, x)}).plan();
  EXPECT_THAT(devices_of(apart, kCopy), ElementsAre(3));
}

TEST_F(LogicalGpusTest, HaveALaneEach) {
  Output x = source(gpu(0));
  for (const int device : {1, 2, 3}) {
    DeviceScope on(graph, gpu(device));
    x = relu(x);
  }
  std::vector<int> strands;
  for (const Strand& strand : session.prepare({Fetch(x.node())}).plan()->strands)
    strands.push_back(strand.device);
  EXPECT_THAT(strands, ElementsAre(1, 2, 3, 4));
}

TEST_F(LogicalGpusTest, HaveAMemoryLimitEach) {
  DeviceScope on(graph, gpu(1));
  const Variable v = variable(graph, "v", {256});
  for (const int limited : {0, 1}) {
    SessionOptions options = gpus(4, 2);
    options.memory_limit = {{cat("gpu:", limited), 1023}};
    Session with_limit(graph, options);
    if (limited == 0)
      with_limit.prepare({Fetch(v.node())});
    else
      EXPECT_THAT(message_of<OutOfMemory>([&] { with_limit.prepare({Fetch(v.node())}); }),
                  HasSubstr("device:GPU:1: its plans need 1024 bytes"));
  }
}

TEST_F(LogicalGpusTest, SayWhoseMemoryTheyUse) {
  std::vector<int> physical;
  for (const DeviceUse& use : session.device_use()) physical.push_back(use.physical_gpu);
  EXPECT_THAT(physical, ElementsAre(-1, 0, 0, 1, 1));
}

}  // namespace logical_gpus_test
}  // namespace belfry
