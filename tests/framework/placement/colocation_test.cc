// Which nodes share a device, what soft placement lets go, and every text of a refusal. The
// expected results are those of TensorFlow 1.15.5.
#include "belfry/framework/placement/colocation.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/tests/framework/placement/placement_support.h"

namespace belfry {
namespace colocation_test {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ColocationTest : public PlacementTest {
 protected:
  ColocationTest() : PlacementTest(4) {}

  Variable at_device(const char* device, const char* name) {
    DeviceScope scope(graph, device);
    return variable(graph, name, {2}, {.initializer = init::zeros()});
  }
};

class ColocationOnGpusTest : public PlacementTest {
 protected:
  ColocationOnGpusTest() : PlacementTest(2, 2) {}
};

constexpr char kAll[] =
    "/job:localhost/replica:0/task:0/device:CPU:0, /job:localhost/replica:0/task:0/device:CPU:1, "
    "/job:localhost/replica:0/task:0/device:CPU:2, /job:localhost/replica:0/task:0/device:CPU:3";

TEST_F(ColocationTest, GroupsShareADevice) {
  const Output a = on("/cpu:1", "a");
  ColocateWith beside(a);
  const Output b = fill(graph, {2}, 0);
  ColocateWith beside_b(b);  // of the group of a
  EXPECT_THAT(devices_of({a, b, fill(graph, {2}, 0)}), ElementsAre(1, 1, 1));
}

TEST_F(ColocationTest, RequestsOfAGroupAddUp) {
  const Output a = on("", "a"), any = with(a, "/cpu", "any"), one = with(a, "/device:*:1", "one"),
               task = with(a, "/task:0", "task");
  EXPECT_THAT(devices_of({a, any, one, task}), ElementsAre(1, 1, 1, 1));
}

TEST_F(ColocationTest, AGroupHoldsTogetherWithoutItsAnchor) {
  const Output anchor = on("", "anchor");
  EXPECT_THAT(devices_of({with(anchor, "", "free"), with(anchor, "/cpu:1", "one")}),
              ElementsAre(1, 1));
}

TEST_F(ColocationTest, ANodeInTwoGroupsJoinsThem) {
  const Output a = on("", "a"), b = on("/cpu:3", "b");
  ColocateWith first(a), second(b);
  EXPECT_THAT(devices_of({fill(graph, {2}, 0), a, b}), ElementsAre(3, 3, 3));
}

// If requests contest an index, soft placement forgets it, until a later request names one. So the
// order of requests decides.
TEST_F(ColocationTest, SoftPlacementClearsIndicesInTheOrderOfRequests) {
  const auto devices_for = [&](const std::vector<const char*>& requests) {
    const Output anchor = on("");
    std::vector<Output> nodes;
    for (const char* request : requests) nodes.push_back(with(anchor, request, "n"));
    return devices_of(nodes, true);
  };
  EXPECT_THAT(devices_for({"/cpu:1", "/cpu:2"}), ElementsAre(0, 0));
  EXPECT_THAT(devices_for({"/cpu:1", "/cpu:2", "/cpu:3"}), ElementsAre(3, 3, 3));
  EXPECT_THAT(devices_for({"/cpu:1", "/cpu:1", "/cpu:3"}), ElementsAre(0, 0, 0));
  EXPECT_THAT(devices_for({"/cpu:1", "/gpu:2"}),
              ElementsAre(0, 0));  // the type goes, and the index
  EXPECT_THAT(devices_for({"/cpu:1", "/gpu:1", "/cpu:2"}), ElementsAre(2, 2, 2));
  EXPECT_THAT(devices_for({"/gpu:1", "/gpu:1"}), ElementsAre(0, 0));
}

TEST_F(ColocationTest, SoftPlacementTakesADeviceThatExists) {
  EXPECT_EQ(device(on("/gpu:1"), true), 0);
  EXPECT_EQ(device(on("/cpu:9"), true), 0);
  EXPECT_EQ(device(on("/cpu:1"), true), 1);
  EXPECT_EQ(device(on("/task:0/gpu:1"), true), 0);
}

TEST_F(ColocationTest, SoftPlacementKeepsJobReplicaAndTask) {
  EXPECT_THAT(refusal({on("/job:ps/cpu:0", "far")}, true),
              StartsWith("Cannot assign a device for operation far: node far (defined at "
                         "placement_support.h:"));
  EXPECT_THAT(refusal({on("/task:1")}, true), HasSubstr("was explicitly assigned to /task:1 but"));
  EXPECT_THAT(refusal({on("/replica:2/gpu:0")}, true), HasSubstr("valid device."));
}

TEST_F(ColocationTest, SoftPlacementLeavesGroupsApartThatCannotBeTogether) {
  const Output anchor = on("", "anchor");
  ColocateWith group(anchor);
  const Variable v = at_device("/cpu:1", "v"), w = at_device("/cpu:3", "w");
  EXPECT_THAT(devices_of({v.ref(), w.ref()}, true), ElementsAre(1, 3));
}

TEST_F(ColocationTest, VariablesKeepWhatTheyAskFor) {
  const Output anchor = on("", "anchor"), two = with(anchor, "/cpu:2", "two");
  ColocateWith group(anchor);
  const Variable v = at_device("/cpu:1", "v");
  const Output three = with(anchor, "/cpu:3", "three");
  EXPECT_THAT(devices_of({two, v.ref(), three}, true), ElementsAre(1, 1, 1));
}

TEST_F(ColocationTest, AVariableWithoutItsDeviceIsMovedByASecondTry) {
  const Variable v = at_device("/gpu:1", "v");
  Node& write = assign(v, constant(graph, {1, 2}, {2}));
  EXPECT_THAT(devices_of({v.ref(), write.output()}, true), ElementsAre(0, 0));
}

TEST_F(ColocationOnGpusTest, SoftPlacementMovesAVariableOnlyForWhatMustBeWithIt) {
  DeviceScope scope(graph, "/gpu:1");
  const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
  const Output anchor = v;
  EXPECT_EQ(device(host_only(v), true), 0);
  EXPECT_THAT(devices_of({v.ref(), anchor}, true), ElementsAre(3, 3));
  ColocateWith beside(v.ref());
  const Output moved = host_only(anchor);
  EXPECT_THAT(devices_of({v.ref(), moved}, true), ElementsAre(0, 0));
  EXPECT_THAT(devices_of({v.ref(), anchor}, true), ElementsAre(0, 0));
}

TEST_F(ColocationTest, TheConsumerOfAReferenceGivesWay) {
  const Variable v = at_device("/cpu:1", "v");
  Node& write = assign(v, constant(graph, {1, 2}, {2}));
  fixed = &v.node();  // moved to cpu:2 by an earlier plan
  EXPECT_THAT(devices_of({v.ref(), write.output()}), ElementsAre(2, 2));
  const PlacementContext seen = known();
  EXPECT_THAT(Colocation(graph, seen).set(write.id()).fallbacks,
              ElementsAre("Ignoring device specification /device:CPU:1 for node 'Assign' because "
                          "the input edge from 'v' is a reference connection and already has a "
                          "device field set to /job:localhost/replica:0/task:0/device:CPU:2"));
}

TEST_F(ColocationTest, OneNodeCannotWriteVariablesOfTwoDevices) {
  const Variable v = at_device("/cpu:1", "v"), w = at_device("/cpu:2", "w");
  const Output grad = constant(graph, {1, 2}, {2});
  Node& update = momentum_update(v, w, grad, constant(graph, 0.1));
  for (const bool soft : {false, true})
    EXPECT_EQ(refusal({update.output()}, soft),
              "Cannot place the graph because a reference or resource edge connects colocation "
              "groups with incompatible resource devices: /device:CPU:2 vs /device:CPU:1. The edge "
              "src node is w , and the dst node is MomentumUpdate");
}

TEST_F(ColocationTest, NamesADeviceThatDoesNotExistAndThoseThatDo) {
  EXPECT_THAT(refusal({on("/cpu:7", "far")}),
              AllOf(ContainsRegex("^Cannot assign a device for operation far: node far \\(defined "
                                  "at placement_support.h:[0-9]+\\)  was explicitly assigned to "
                                  "/device:CPU:7 but available devices are \\[ /job:"),
                    EndsWith(cat("available devices are [ ", kAll,
                                 " ]. Make sure the device specification refers to a valid "
                                 "device."))));
  EXPECT_THAT(refusal({on("/gpu:1")}),
              EndsWith("refers to a valid device. The requested device appears to be a GPU, but "
                       "CUDA is not enabled."));
  EXPECT_THAT(refusal({on("/job:ps/cpu:0")}),
              HasSubstr("was explicitly assigned to /job:ps/device:CPU:0 but available"));
}

TEST_F(ColocationOnGpusTest, AGpuThatIsNotAmongTheDeclaredGetsNoHintAboutCuda) {
  EXPECT_THAT(refusal({on("/gpu:2")}), EndsWith("refers to a valid device."));
}

TEST_F(ColocationOnGpusTest, NamesAKernelThatIsMissing) {
  DeviceScope scope(graph, "/gpu:0");
  const Output x = host_only(fill(graph, {2}, 1), "lone");
  EXPECT_EQ(refusal({x}),
            "Cannot assign a device for operation lone: Could not satisfy explicit device "
            "specification '/device:GPU:0' because no supported kernel for GPU devices is "
            "available.\n"
            "Colocation Debug Info:\n"
            "Colocation group had the following types and supported devices: \n"
            "Root Member(assigned_device_name_index_=-1 requested_device_name_='/device:GPU:0' "
            "assigned_device_name_='' resource_device_name_='' supported_device_types_=[CPU] "
            "possible_devices_=[]\n"
            "HostOnly: CPU \n\n"
            "Colocation members, user-requested devices, and framework assigned devices, if any:\n"
            "  lone (HostOnly) /device:GPU:0\n\n"
            "Op: HostOnly\n"
            "Node attrs: \n"
            "Registered kernels:\n"
            "  device='CPU'\n"
            "There is no kernel for GPU devices: it is for tests.\n");
  EXPECT_EQ(device(x, true), 0);
}

// An index without a type can name GPUs alone.
TEST_F(ColocationTest, ARequestWithoutATypeMayHaveNoKernelEither) {
  devices = declared_devices(1, 2);
  DeviceScope scope(graph, "/device:*:1");
  EXPECT_THAT(refusal({host_only(fill(graph, {2}, 1), "lone")}),
              StartsWith("Cannot assign a device for operation lone: Could not satisfy explicit "
                         "device specification '/device:*:1'\nColocation Debug Info:"));
}

TEST_F(ColocationTest, NamesTheGroupThatWantsAnotherDevice) {
  const Output anchor = on("", "anchor"), other = with(anchor, "/cpu:9", "other");
  EXPECT_THAT(
      refusal({anchor, other}),
      AllOf(ContainsRegex("^Cannot assign a device for operation anchor: Could not satisfy "
                          "explicit device specification '' because the node anchor \\(defined at "
                          "placement_support.h:[0-9]+\\) was colocated with a group of nodes that "
                          "required incompatible device '/device:CPU:9'\\. All available"),
            HasSubstr(cat("All available devices [", kAll, "]. \nColocation Debug Info:\n")),
            HasSubstr("\n  anchor (Fill) \n  other (Fill) /device:CPU:9\n")));
}

TEST_F(ColocationTest, NamesTheNodesOfAGroupThatAskForDifferentDevices) {
  const auto refused = [&](const char* first, const char* second) {
    const Output anchor = on("", "anchor");
    return refusal({with(anchor, first, "a"), with(anchor, second, "b")});
  };
  EXPECT_THAT(refused("/cpu:1", "/cpu:2"),
              ContainsRegex("^Cannot colocate nodes b \\(defined at placement_support.h:[0-9]+\\) "
                            "and anchor \\(defined at placement_support.h:[0-9]+\\): Cannot merge "
                            "devices with incompatible ids: '/device:CPU:1' and '/device:CPU:2'$"));
  EXPECT_THAT(refused("/cpu:1", "/gpu:1"),
              EndsWith("incompatible types: '/device:CPU:1' and '/device:GPU:1'"));
  EXPECT_THAT(refused("/job:a", "/job:b"), EndsWith("incompatible jobs: '/job:a' and '/job:b'"));
  EXPECT_THAT(refused("/replica:0", "/replica:1"),
              EndsWith("incompatible replicas: '/replica:0' and '/replica:1'"));
  EXPECT_THAT(refused("/task:0", "/task:1"),
              EndsWith("incompatible tasks: '/task:0' and '/task:1'"));
}

TEST_F(ColocationTest, AnOpWithoutAnyKernelIsRefused) {
  const Output x = graph.add(gpu_only_op(), {}, "lone").output();
  EXPECT_THAT(refusal({x}),
              AllOf(StartsWith("No OpKernel was registered to support Op 'GpuOnly' used by node "
                               "lone (defined at colocation_test.cc:"),
                    EndsWith("Registered devices: [CPU]\nRegistered kernels:\n  <no registered "
                             "kernels>\n")));
}

TEST_F(ColocationOnGpusTest, NoTypeOfDeviceMaySupportAWholeGroup) {
  const Output x = graph.add(gpu_only_op(), {}, "lone").output();
  ColocateWith beside(x);
  const Output y = host_only(x, "other");
  EXPECT_THAT(refusal({x, y}),
              AllOf(StartsWith("Cannot colocate nodes other (defined at "),
                    HasSubstr(" because no device type supports both of those nodes and the other "
                              "nodes colocated with them.\nColocation Debug Info:\n"),
                    HasSubstr("  lone (GpuOnly) \n"), HasSubstr("  other (HostOnly) \n")));
  EXPECT_THAT(devices_of({x, y}, true), ElementsAre(2, 0));
}

}  // namespace colocation_test
}  // namespace belfry
