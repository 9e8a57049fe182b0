#include "belfry/framework/cuda/kernels/gpu_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry::cuda {
namespace gpu_kernel_test {

TEST(GpuKernels, AreThereForAllOpsThatRunOnGpus) {
  EXPECT_THAT(ops_without_gpu_kernel(), testing::IsEmpty());
}

}  // namespace gpu_kernel_test
}  // namespace belfry::cuda
