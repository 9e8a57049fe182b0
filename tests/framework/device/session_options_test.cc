// Devices of a session, their limits, the log of placements, and sessions that only plan.
#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/device/gpus.h"
#include "belfry/ops/all_reduce.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/relu.h"
#include "belfry/tests/framework/placement/placement_support.h"
#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry {
namespace session_options_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string refusal(SessionOptions options) {
  Graph graph;
  return message_of<InvalidArgument>([&] { Session session(graph, std::move(options)); });
}

std::vector<DeviceSpec> devices_with(SessionOptions options) {
  Graph graph;
  return Session(graph, std::move(options)).devices();
}

TEST(SessionOptions, DeviceCountMakesCpusAndLimitsGpus) {
  EXPECT_THAT(devices_with({}), ElementsAre(cpu(0)));
  EXPECT_THAT(devices_with({.device_count = {{"CPU", 2}}}), ElementsAre(cpu(0), cpu(1)));
  EXPECT_THAT(devices_with({.device_count = {{"cpu", 2}}}), ElementsAre(cpu(0), cpu(1)));
  const int present = std::min(gpus().count(), 4);
  EXPECT_EQ(std::ssize(devices_with({.device_count = {{"GPU", 4}}})), 1 + present);
  EXPECT_THAT(devices_with({.device_count = {{"GPU", 0}}}), ElementsAre(cpu(0)));
  EXPECT_EQ(devices_with({.device_count = {{"CPU", 1024}}}).size(), 1024u);
}

TEST(SessionOptions, ADryRunDeclaresGpus) {
  EXPECT_THAT(devices_with({.device_count = {{"gpu", 2}}, .dry_run = true}),
              ElementsAre(cpu(0), gpu(0), gpu(1)));
  EXPECT_THAT(devices_with({.dry_run = true}), ElementsAre(cpu(0)));
  EXPECT_EQ(devices_with({.device_count = {{"GPU", 1024}}, .dry_run = true}).size(), 1025u);
}

TEST(SessionOptions, RefuseDeviceCountsThatCannotBe) {
  EXPECT_EQ(refusal({.device_count = {{"TPU", 1}}}),
            "device_count: 'TPU' is not a type of device; the known ones are CPU and GPU");
  EXPECT_THAT(refusal({.device_count = {{"CPU", 0}}}), HasSubstr("0 CPU devices were asked for"));
  EXPECT_THAT(refusal({.device_count = {{"GPU", -1}}}), HasSubstr("-1 GPU devices"));
  EXPECT_THAT(refusal({.device_count = {{"CPU", 1025}}}), HasSubstr("1 to 1024 are possible"));
  EXPECT_THAT(refusal({.device_count = {{"CPU", 2}, {"cpu", 2}}}), HasSubstr("CPU is given twice"));
  EXPECT_THAT(refusal({.device_count = {{"CPU", 1}, {"GPU", 1024}}}),
              HasSubstr("1 CPU and 1024 GPU devices are more than the 1024"));
}

TEST(SessionOptions, VisibleDevicesLimitTheGpus) {
  const auto gpus = [](std::string visible) {
    return devices_with({.device_count = {{"GPU", 3}},
                         .visible_devices = std::move(visible),
                         .dry_run = true})
               .size() -
           1;
  };
  EXPECT_EQ(gpus(""), 3u);
  EXPECT_EQ(gpus("2,0"), 2u);
  EXPECT_EQ(gpus("7"), 1u);
  EXPECT_EQ(gpus("0,1,2,3"), 3u);
}

TEST(SessionOptions, RefuseVisibleDevicesThatAreNoNumbers) {
  for (const char* list : {",", "0,", "a", "-1", "1.5", "0, 1", "99999999999"})
    EXPECT_THAT(refusal({.visible_devices = list}), HasSubstr("is not the number of a GPU"))
        << list;
  EXPECT_EQ(refusal({.visible_devices = "1,0,1"}), "visible_devices: GPU 1 is in '1,0,1' twice");
}

TEST(SessionOptions, RefuseThreadsAndLimitsThatCannotBe) {
  EXPECT_THAT(refusal({.threads = -1}), HasSubstr("threads must be from 0"));
  EXPECT_THAT(refusal({.memory_limit = {{"cpu:1", 100}}}), HasSubstr("'cpu:1' with 100 bytes"));
  EXPECT_THAT(refusal({.memory_limit = {{"cpu:0", -1}}}),
              HasSubstr("names no device or no memory"));
  EXPECT_THAT(refusal({.memory_limit = {{"gpu:0", 1}}}), HasSubstr("'gpu:0' with 1 bytes"));
}

TEST(SessionOptions, AMemoryLimitIsKeptBeforeAnythingRuns) {
  Graph graph;
  DeviceScope scope(graph, "/cpu:1");
  const Variable v = variable(graph, "v", {256});  // 1024 bytes
  const Output y = relu(v);                        // as many, and once more when it is fetched
  for (const char* name : {"cpu:1", "/job:localhost/replica:0/task:0/device:CPU:1", "/cpu"}) {
    const auto with_limit = [&](std::int64_t bytes) {
      return SessionOptions{.device_count = {{"CPU", 2}}, .memory_limit = {{name, bytes}}};
    };
    Session enough(graph, with_limit(3072));
    EXPECT_EQ(enough.run(y).elements(), 256);
    for (const bool dry : {false, true}) {
      SessionOptions options = with_limit(3071);
      options.dry_run = dry;
      Session session(graph, std::move(options));
      EXPECT_EQ(message_of<OutOfMemory>([&] { session.prepare({y}); }),
                "/job:localhost/replica:0/task:0/device:CPU:1: its plans need 3072 bytes, of which "
                "1024 for this one's arena and 1024 for its fetches, but its limit is 3071; use a "
                "smaller batch or more devices");
      EXPECT_EQ(session.device_use()[1].variables, 0);
    }
  }
}

// The program of the seed page, on a machine without GPUs.
TEST(SessionOptions, GpusThatDoNotExistAreNamedWhenANodeAsksForOne) {
  if (gpus().count() > 0) GTEST_SKIP() << "this machine has GPUs";
  Graph graph;
  std::vector<Output> c;
  for (const char* device : {"/device:GPU:2", "/device:GPU:3"}) {
    DeviceScope on(graph, device);
    const Output a = constant(graph, {1, 2, 3, 4, 5, 6}, {2, 3}, "a");
    const Output b = constant(graph, {1, 2, 3, 4, 5, 6}, {3, 2}, "b");
    c.push_back(matmul(a, b));
  }
  DeviceScope on(graph, "/cpu:0");
  const Output sum = add_n(c);
  std::string printed;
  SessionOptions options{.device_count = {{"CPU", 3}, {"GPU", 4}},
                         .log_device_placement = true,
                         .placement_sink = [&](std::string_view text) { printed += text; }};
  Session session(graph, options);
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { session.run(sum); }),
      AllOf(HasSubstr("Cannot assign a device for operation MatMul: node MatMul (defined at "
                      "session_options_test.cc:"),
            HasSubstr(")  was explicitly assigned to /device:GPU:2 but available devices are [ "
                      "/job:localhost/replica:0/task:0/device:CPU:0, "
                      "/job:localhost/replica:0/task:0/device:CPU:1, "
                      "/job:localhost/replica:0/task:0/device:CPU:2 ]. Make sure the device "
                      "specification refers to a valid device. The requested device appears to be "
                      "a GPU, but CUDA is not enabled.")));
  EXPECT_EQ(printed, "Device mapping: no known devices.\n");
  options.allow_soft_placement = true;
  Session soft(graph, options);
  EXPECT_EQ(soft.run(sum), Tensor({2, 2}, std::vector<float>{44, 56, 98, 128}));
}

TEST(SessionOptions, TheLogNamesDevicesThenNodesInOrderOfAssignment) {
  Graph graph;
  const Output a = constant(graph, {1, 2}, {2}, "a");
  Output b;
  {
    DeviceScope on(graph, "/gpu:1");
    b = relu(a, "b");
  }
  std::string printed;
  Session session(graph, {.device_count = {{"GPU", 2}},
                          .log_device_placement = true,
                          .placement_sink = [&](std::string_view text) { printed += text; },
                          .dry_run = true});
  EXPECT_EQ(printed,
            "Device mapping:\n"
            "/job:localhost/replica:0/task:0/device:GPU:0 -> declared, absent\n"
            "/job:localhost/replica:0/task:0/device:GPU:1 -> declared, absent\n");
  printed.clear();
  session.prepare({b});
  EXPECT_EQ(printed,
            "b: (Relu): /job:localhost/replica:0/task:0/device:GPU:1\n"
            "a: (Const): /job:localhost/replica:0/task:0/device:GPU:1\n");
}

TEST(SessionOptions, TheLogDescribesGpusAsTensorFlowDoes) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const auto line = [](int device, int physical) {
    return cat("/job:localhost/replica:0/task:0/device:GPU:", device, " -> device: ", physical,
               ", name: Fake, pci bus id: 0000:0", physical, ":00.0, compute capability: 9.0\n");
  };
  EXPECT_EQ(device_mapping(make_devices({.device_count = {{"GPU", 3}}, .logical_gpus = 2})),
            cat("Device mapping:\n", line(0, 0), line(1, 0), line(2, 1)));
}

TEST(SessionOptions, TheLogHasEachNodeOnceAndInitialisers) {
  for (const bool dry : {false, true}) {
    Graph graph;
    const Variable v = variable(graph, "v", {2}, {.initializer = init::zeros()});
    const Output y = relu(v, "y"), z = relu(y, "z");
    std::string printed;
    Session session(graph, {.log_device_placement = true,
                            .placement_sink = [&](std::string_view text) { printed += text; },
                            .dry_run = dry});
    session.prepare({y});
    session.prepare({z});
    const std::string device = ": /job:localhost/replica:0/task:0/device:CPU:0\n";
    EXPECT_EQ(printed, cat("Device mapping: no known devices.\nv: (Variable)", device,
                           "v/read: (Read)", device, "y: (Relu)", device,
                           "v/Initializer/Fill: (Fill)", device, "z: (Relu)", device))
        << dry;
  }
}

TEST(SessionOptions, TheLogGoesToStandardOutputByDefault) {
  Graph graph;
  const Output a = constant(graph, {1, 2}, {2}, "a");
  testing::internal::CaptureStdout();
  Session session(graph, {.log_device_placement = true});
  session.run(a);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "Device mapping: no known devices.\n"
            "a: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n");
}

class DryRunTest : public PlacementTest {
 protected:
  DryRunTest() : session(graph, {.device_count = {{"CPU", 2}, {"GPU", 2}}, .dry_run = true}) {
    DeviceScope scope(graph, "/gpu:1");
    v = variable(graph, "v", {256});
    y = relu(v);
  }
  Session session;
  Variable v;
  Output y;
};

TEST_F(DryRunTest, RunsNothingAndNamesTheDevice) {
  const std::string gpu1 = "/job:localhost/replica:0/task:0/device:GPU:1, which is only declared";
  EXPECT_EQ(message_of<InvalidArgument>([&] { session.run(y); }),
            cat("this session is a dry run, so nothing runs on ", gpu1,
                "; prepare() plans, and a session without dry_run runs"));
  CompiledStep& step = session.prepare({y});
  EXPECT_THAT(message_of<InvalidArgument>([&] { step.run(); }), HasSubstr(gpu1));
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.read(v); }), HasSubstr(gpu1));
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.write(v, Tensor({256}, DType::kF32)); }),
              HasSubstr(gpu1));
  DeviceScope scope(graph, "/cpu:1");
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.run(relu(fill(graph, {2}, 1))); }),
              AllOf(HasSubstr("nothing runs on /job:localhost/replica:0/task:0/device:CPU:1;")));
  EXPECT_EQ(step.fetched(0).elements(), Tensor().elements());
}

TEST_F(DryRunTest, PlansMemoryWithoutTakingAny) {
  std::size_t allocated = 0;
  set_allocation_hook([&](const std::string&, std::size_t bytes) { allocated += bytes; });
  session.prepare({y});
  set_allocation_hook({});
  EXPECT_EQ(allocated, 0u);
  const std::vector<DeviceUse> uses = session.device_use();
  ASSERT_EQ(uses.size(), 4u);
  EXPECT_EQ(uses[3].device, gpu(1));
  EXPECT_EQ(uses[3].variables, 1);
  EXPECT_EQ(uses[3].variable_bytes, 1024);
  EXPECT_EQ(uses[3].peak_bytes, 2048);
  EXPECT_EQ(uses[3].str(),
            "/job:localhost/replica:0/task:0/device:GPU:1: 1 variable, 1024 bytes, planned peak "
            "2048 bytes without the workspaces of libraries");
  EXPECT_EQ(uses[0].str(),
            "/job:localhost/replica:0/task:0/device:CPU:0: 0 variables, 0 bytes, planned peak 2048 "
            "bytes");  // what is fetched comes by its arena, to memory of the host
  EXPECT_EQ(session.peak_bytes().at(gpu(1).str()), 2048);
  EXPECT_EQ(session.placement(y), gpu(1));
}

TEST_F(DryRunTest, PlansTheSameBytesAsARunWhereDevicesAreEqual) {
  Graph other;
  DeviceScope scope(other, "/cpu:1");
  const Variable w = variable(other, "w", {64, 64});
  const Output z = relu(matmul(w, w));
  SessionOptions options{.device_count = {{"CPU", 2}}};
  Session real(other, options);
  real.run(z);
  options.dry_run = true;
  Session dry(other, options);
  dry.prepare({z});
  EXPECT_EQ(dry.peak_bytes(), real.peak_bytes());
}

TEST_F(DryRunTest, OpsWithoutAGpuKernelAreRefusedOnDeclaredGpus) {
  DeviceScope scope(graph, "/gpu:0");
  EXPECT_THAT(message_of<InvalidArgument>([&] { session.prepare({host_only(y)}); }),
              HasSubstr("no supported kernel for GPU devices is available."));
  DeviceScope none(graph, NoDevice{});
  const Output free = host_only(y);
  session.prepare({free});
  EXPECT_EQ(session.placement(free), cpu(0));
}

TEST_F(DryRunTest, CollectivesOfDeclaredGpusHaveASumOnEach) {
  std::vector<Output> parts;
  for (const char* device : {"/gpu:0", "/gpu:1", "/cpu:0", "/cpu:1"}) {
    DeviceScope scope(graph, device);
    parts.push_back(relu(fill(graph, {256}, 1)));
  }
  const auto sums = all_reduce(parts);
  session.prepare({sums[0], sums[1], sums[2], sums[3]});
  const auto peaks = session.peak_bytes();
  EXPECT_EQ(peaks.at(gpu(0).str()), 1024);
  EXPECT_EQ(peaks.at(gpu(1).str()), 1024);
  EXPECT_EQ(session.placement(sums[1]), gpu(1));
  EXPECT_EQ(session.placement(sums[3]), cpu(1));
}

}  // namespace session_options_test
}  // namespace belfry
