#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/device/gpus.h"

extern "C" belfry::GpuModuleEntry belfry_gpu_backend;

namespace belfry {
namespace backend_test {

using testing::MatchesRegex;

TEST(CudaBackend, IsHandedToItsOwnBuildAlone) {
  const char* own = nullptr;
  EXPECT_EQ(belfry_gpu_backend("0.0.9-0123456789ab", &own), nullptr);
  ASSERT_NE(own, nullptr);
  EXPECT_THAT(std::string(own), MatchesRegex("[0-9.]+-[0-9a-f]+"));
  EXPECT_EQ(belfry_gpu_backend(std::string(own).c_str(), &own), gpus().backend());
}

TEST(CudaBackend, CountsGpusOrSaysWhyThereAreNone) {
  const GpuBackend& backend = *gpus().backend();
  EXPECT_EQ(backend.count(), gpus().count());
  EXPECT_EQ(backend.count() > 0, backend.why_none().empty());
  if (backend.versions().driver.empty()) {
    EXPECT_EQ(gpus().why_none(), "no NVIDIA driver is installed");
    EXPECT_EQ(why_no_gpu_devices(), "no NVIDIA driver is installed");
  }
}

TEST(CudaBackend, KnowsTheVersionsOfItsLibraries) {
  const GpuVersions versions = gpus().backend()->versions();
  EXPECT_THAT(versions.runtime, MatchesRegex("1[23]\\.[0-9]+"));
  EXPECT_THAT(versions.cublas_lt, MatchesRegex("1[23]\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(versions.cudnn, MatchesRegex("9\\.[0-9]+\\.[0-9]+"));
}

TEST(CudaBackend, RefusesNumbersThatAreNoGpu) {
  const GpuBackend& backend = *gpus().backend();
  for (const int gpu : {-1, backend.count()}) {
    EXPECT_THROW(backend.info(gpu), InvalidArgument);
    EXPECT_THROW(backend.refusal(gpu), InvalidArgument);
    EXPECT_THROW(backend.peer_access(gpu, 0), InvalidArgument);
    EXPECT_THROW(backend.allocate(gpu, 64), InvalidArgument);
    EXPECT_THROW(backend.make_stream(gpu, {}), InvalidArgument);
    EXPECT_THROW(backend.make_event(gpu), InvalidArgument);
  }
}

TEST(CudaBackend, DescribesEachGpu) {
  const GpuBackend& backend = *gpus().backend();
  if (backend.count() == 0) GTEST_SKIP() << gpus().why_none();
  for (int gpu = 0; gpu < backend.count(); ++gpu) {
    const GpuInfo info = backend.info(gpu);
    EXPECT_NE(info.name, "");
    EXPECT_GT(info.memory_bytes, std::int64_t{1} << 30);
    EXPECT_GE(info.major, 7);
    EXPECT_THAT(info.pci_bus_id, testing::MatchesRegex("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\\.0"));
    EXPECT_EQ(backend.refusal(gpu), "");
    EXPECT_FALSE(backend.peer_access(gpu, gpu));
  }
}

TEST(CudaBackend, KnowsNcclOrWhyNot) {
  const NcclInfo nccl = gpus().backend()->nccl();
  EXPECT_EQ(nccl.version > 0, nccl.why_not.empty());
}

}  // namespace backend_test
}  // namespace belfry
