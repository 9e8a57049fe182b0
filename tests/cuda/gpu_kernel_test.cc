#include "belfry/framework/cuda/gpu_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry::cuda {
namespace gpu_kernel_test {

using testing::ElementsAre;
using testing::StrEq;

TEST(GpuKernels, AreThereForAllOpsButThoseOfLibraries) {
  EXPECT_THAT(ops_without_gpu_kernel(),
              ElementsAre(StrEq("AvgPool"), StrEq("AvgPoolGrad"), StrEq("Conv2d"),
                          StrEq("Conv2dGradFilter"), StrEq("Conv2dGradInput"), StrEq("MatMul"),
                          StrEq("MatMulTransposeA")));
}

}  // namespace gpu_kernel_test
}  // namespace belfry::cuda
