// Each op has its kernel in the GPU module, and each that takes 16 bits has a case. For
// gpu_ops_tests.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/graph/op.h"
#include "belfry/tests/ops/half_cases.h"

namespace belfry {
namespace kernels_of_ops {

struct GpuKernelsOfOps : testing::Test {
  std::vector<const char*> missing;
  std::vector<const Op*> take_half;

  void SetUp() override {
    using Fill = void(std::vector<const char*>&, std::vector<const Op*>&);
    void* const module = dlopen(BELFRY_BIN_DIR "/../lib/libgpu_kernel_tests.so", RTLD_NOW);
    ASSERT_TRUE(module) << dlerror();
    auto* const fill = reinterpret_cast<Fill*>(dlsym(module, "belfry_gpu_kernels_of_ops"));
    ASSERT_TRUE(fill) << dlerror();
    fill(missing, take_half);
  }
};

TEST_F(GpuKernelsOfOps, AreThereForAllThatRunOnGpus) {
  EXPECT_THAT(missing, testing::IsEmpty())
      << "give them a GpuKernel in their .cu, or state .cpu_only and why";
}

TEST_F(GpuKernelsOfOps, ThatTakeSixteenBitsHaveCases) {
  EXPECT_GT(take_half.size(), 40U);
  EXPECT_THAT(half_test::without_case(take_half), testing::IsEmpty())
      << "add them to kCases or kExceptions of tests/ops/half_test.cc";
}

}  // namespace kernels_of_ops
}  // namespace belfry
