#include "belfry/framework/device/gpus.h"

#include <cstdlib>
#include <filesystem>
#include <thread>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpu_kernels.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/device/fake_gpus.h"

namespace belfry {
namespace gpus_test {

using test::FakeGpus;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kLibraries = BELFRY_BIN_DIR "/../lib/";

bool module_was_built() { return std::filesystem::exists(kLibraries + "libbelfry_cuda.so"); }

// Whether the libraries of CUDA are gone since the build, or hidden.
bool libraries_are_missing(const std::string& why) {
  return why.find("cannot open shared object file") != why.npos ||
         why.find("file too short") != why.npos;
}

TEST(Gpus, AreThoseOfTheBackend) {
  const FakeGpus two(2);
  const Gpus found(two);
  EXPECT_EQ(found.count(), 2);
  EXPECT_EQ(found.why_none(), "");
  EXPECT_EQ(found.backend(), &two);
}

TEST(Gpus, AreAbsentForTheReasonOfTheBackend) {
  const FakeGpus none(0, "no NVIDIA driver is installed");
  const Gpus found(none);
  EXPECT_EQ(found.count(), 0);
  EXPECT_EQ(found.why_none(), "no NVIDIA driver is installed");
  EXPECT_EQ(found.backend(), &none);
}

TEST(Gpus, ThatCannotBeCountedAreAbsent) {
  struct Broken : FakeGpus {
    Broken() : FakeGpus(3) {}
    int count() const override { throw DeviceError("the driver is upset"); }
  };
  const Broken broken;
  const Gpus found(broken);
  EXPECT_EQ(found.count(), 0);
  EXPECT_EQ(found.why_none(), "the driver is upset");
}

TEST(GpuModule, IsLoadedFromAFile) {
  const Gpus found = Gpus::load(kLibraries + "libgpu_module_two_gpus.so");
  ASSERT_EQ(found.why_none(), "");
  EXPECT_EQ(found.count(), 2);
  EXPECT_EQ(found.backend()->info(1).name, "Fake");
  EXPECT_THROW(found.backend()->info(2), InvalidArgument);
}

TEST(GpuModule, ThatIsMissingIsNamed) {
  const Gpus found = Gpus::load(kLibraries + "libnot_here.so");
  EXPECT_EQ(found.count(), 0);
  EXPECT_EQ(found.backend(), nullptr);
  EXPECT_THAT(found.why_none(), AllOf(StartsWith("the GPU module cannot be loaded: "),
                                      HasSubstr("libnot_here.so: cannot open shared object file")));
}

TEST(GpuModule, OfAnotherBuildIsRefused) {
  const Gpus found = Gpus::load(kLibraries + "libgpu_module_other_build.so");
  EXPECT_EQ(found.count(), 0);
  EXPECT_EQ(found.backend(), nullptr);
  EXPECT_THAT(found.why_none(), AllOf(HasSubstr("libgpu_module_other_build.so is of another build "
                                                "(0.0.9-0123456789ab; this is "),
                                      EndsWith("); build both again")));
}

TEST(GpuModule, WithoutItsEntryIsRefused) {
  EXPECT_THAT(
      Gpus::load(kLibraries + "libgpu_module_no_entry.so").why_none(),
      EndsWith("libgpu_module_no_entry.so is another library: it has no belfry_gpu_backend"));
}

// Whether the library is in this process.
bool is_loaded(const std::string& path) {
  void* const found = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (found) dlclose(found);
  return found != nullptr;
}

TEST(GpuKernels, OfAProgramAreLoadedWithTheModule) {
  const std::string own = kLibraries + "libgpu_module_own_kernels.so";
  const GpuKernelsRegistration kernels(own);
  EXPECT_FALSE(is_loaded(own));
  const Gpus found = Gpus::load(kLibraries + "libgpu_module_two_gpus.so");
  EXPECT_EQ(found.why_none(), "");
  EXPECT_EQ(found.count(), 2);
  EXPECT_TRUE(is_loaded(own));
}

TEST(GpuKernels, ThatAreMissingAreNamed) {
  const GpuKernelsRegistration kernels("libnot_here.so");
  EXPECT_THAT(Gpus::load(kLibraries + "libgpu_module_two_gpus.so").why_none(),
              AllOf(StartsWith("the program's GPU kernels cannot be loaded: "),
                    HasSubstr("libnot_here.so: cannot open shared object file")));
}

TEST(GpuKernels, ForAnotherBuildAreRefused) {
  const GpuKernelsRegistration kernels(kLibraries + "libgpu_module_other_kernels.so");
  const Gpus found = Gpus::load(kLibraries + "libgpu_module_two_gpus.so");
  EXPECT_EQ(found.count(), 0);
  EXPECT_THAT(found.why_none(),
              AllOf(StartsWith("the GPU kernels in "),
                    HasSubstr("libgpu_module_other_kernels.so are for another build of Belfry "
                              "(0.0.9-0123456789ab; this is "),
                    EndsWith("); build the program again")));
}

TEST(GpuModule, IsLoadedOnceByWhicheverThreadAsksFirst) {
  const Gpus* seen[4] = {};
  {
    std::vector<std::jthread> threads;
    for (const Gpus*& gpus_seen : seen) threads.emplace_back([&] { gpus_seen = &gpus(); });
  }
  for (const Gpus* gpus_seen : seen) EXPECT_EQ(gpus_seen, &gpus());
}

TEST(GpuModule, OfThisBuildIsFoundBesideTheLibrary) {
  if (!module_was_built()) {
    EXPECT_THAT(gpus().why_none(), StartsWith("this build has no GPU module (BELFRY_"));
    GTEST_SKIP() << gpus().why_none();
  }
  if (libraries_are_missing(gpus().why_none())) GTEST_SKIP() << gpus().why_none();
  EXPECT_NE(gpus().backend(), nullptr) << gpus().why_none();
}

// scripts/test asks for this test after it has hidden the libraries of CUDA.
TEST(GpuModule, FailsToLoadWithoutTheLibrariesOfCuda) {
  const char* const required = std::getenv("BELFRY_REQUIRE_NO_CUDA_LIBRARIES");
  if (!required || std::string(required) != "1")
    GTEST_SKIP() << "only with BELFRY_REQUIRE_NO_CUDA_LIBRARIES=1";
  ASSERT_TRUE(module_was_built());
  EXPECT_EQ(gpus().backend(), nullptr);
  EXPECT_THAT(gpus().why_none(), StartsWith("the GPU module cannot be loaded: "));
  EXPECT_TRUE(libraries_are_missing(gpus().why_none())) << gpus().why_none();
}

TEST(WhyNoGpuDevices, IsOneLine) {
  EXPECT_EQ(why_no_gpu_devices(Gpus("no NVIDIA driver is installed")),
            "no NVIDIA driver is installed");
  const FakeGpus eight(8);
  EXPECT_EQ(why_no_gpu_devices(Gpus(eight)), "");
  EXPECT_THAT(why_no_gpu_devices(), Not(HasSubstr("\n")));
  EXPECT_EQ(why_no_gpu_devices().empty(), gpus().count() > 0);
}

TEST(SetGpus, PutsOthersInPlaceOfThoseOfThisProcess) {
  const FakeGpus backend(3);
  const Gpus* const own = &gpus();
  const Gpus three(backend);
  set_gpus(&three);
  EXPECT_EQ(gpus().count(), 3);
  EXPECT_EQ(why_no_gpu_devices(), "");
  set_gpus(nullptr);
  EXPECT_EQ(&gpus(), own);
}

TEST(WhyNoGpuDevices, IsSaidBySessionsThatAreAskedForGpus) {
  Graph graph;
  const Gpus none("no NVIDIA driver is installed");
  set_gpus(&none);
  const auto log_of = [&graph](SessionOptions options) {
    ::testing::internal::CaptureStderr();
    Session session(graph, std::move(options));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of({.device_count = {{"GPU", 2}}}),
            "W device_count: there are no GPU devices: no NVIDIA driver is installed\n");
  EXPECT_EQ(log_of({.device_count = {{"GPU", 0}}}), "");
  EXPECT_EQ(log_of({.device_count = {{"GPU", 2}}, .dry_run = true}), "");
  set_gpus(nullptr);
}

// Only GPUs that would be used count.
TEST(Session, SaysWhyAGpuRunsNoKernelOfTheModule) {
  struct OneOld : FakeGpus {
    OneOld() : FakeGpus(3) {}
    std::string refusal(int gpu) const override { return gpu == 1 ? "GPU 1 is too old" : ""; }
  };
  const OneOld backend;
  const Gpus three(backend);
  set_gpus(&three);
  const Graph graph;
  const auto refusal = [](const SessionOptions& options) -> std::string {
    try {
      make_devices(options);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal({.device_count = {{"GPU", 2}}}), "GPU 1 is too old");
  EXPECT_EQ(refusal({.device_count = {{"GPU", 3}}, .logical_gpus = 2}), "GPU 1 is too old");
  EXPECT_EQ(refusal({.device_count = {{"GPU", 1}}, .visible_devices = "1"}), "GPU 1 is too old");
  EXPECT_THROW(Session(graph, {.device_count = {{"GPU", 2}}}), DeviceError);
  EXPECT_EQ(refusal({.device_count = {{"GPU", 1}}}), "");
  EXPECT_EQ(refusal({.device_count = {{"GPU", 2}}, .logical_gpus = 2}), "");
  EXPECT_EQ(refusal({.device_count = {{"GPU", 2}}, .visible_devices = "0,2"}), "");
  EXPECT_EQ(refusal({.device_count = {{"GPU", 2}}, .dry_run = true}), "");
  set_gpus(nullptr);
}

}  // namespace gpus_test
}  // namespace belfry
