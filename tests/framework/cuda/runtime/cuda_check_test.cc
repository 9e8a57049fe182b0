#include "belfry/framework/cuda/runtime/cuda_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/device/gpus.h"

namespace belfry::cuda {
namespace cuda_check_test {

using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

template <class Status>
struct Api {
  Status some_call(int) const { return status; }
  Status status;
};

template <class Status>
std::string error_of(Status status) {
  const Api<Status> api{status};
  try {
    BELFRY_GPU_CALL(api.some_call(1), "for the arena of ", "gpu:", 0);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

TEST(GpuCall, ThatFailsNamesItselfTheErrorAndTheContext) {
  EXPECT_EQ(error_of(cudaErrorMemoryAllocation),
            "some_call failed: out of memory (cudaErrorMemoryAllocation, 2), for the arena of "
            "gpu:0");
  EXPECT_EQ(error_of(CUBLAS_STATUS_NOT_SUPPORTED),
            "some_call failed: the requested functionality is not supported "
            "(CUBLAS_STATUS_NOT_SUPPORTED, 15), for the arena of gpu:0");
  EXPECT_THAT(error_of(CUDNN_STATUS_NOT_SUPPORTED),
              AllOf(StartsWith("some_call failed: "),
                    EndsWith("CUDNN_STATUS_NOT_SUPPORTED (3000), for the arena of gpu:0")));
}

TEST(GpuCall, ThatSucceedsDoesNotPutItsContextTogether) {
  const auto context = []() -> std::string {
    ADD_FAILURE() << "put together in vain";
    return "";
  };
  EXPECT_NO_THROW(BELFRY_GPU_CALL(cudaSuccess, context()));
  EXPECT_NO_THROW(BELFRY_GPU_CALL(CUDNN_STATUS_SUCCESS, context()));
  EXPECT_NO_THROW(BELFRY_GPU_CALL(CUBLAS_STATUS_SUCCESS, context()));
}

TEST(GpuCall, LeavesNoErrorBehindForTheNextOne) {
  if (gpus().backend()->versions().driver.empty())
    GTEST_SKIP() << "without a driver every call gives the same error";
  int attribute = 0;
  EXPECT_THROW(BELFRY_GPU_CALL(cudaDeviceGetAttribute(&attribute, cudaDevAttrWarpSize, -1), "here"),
               DeviceError);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(GpuCall, IsNamedByTheFunctionAlone) {
  EXPECT_EQ(called("cudaMalloc(&memory, f(n))"), "cudaMalloc");
  EXPECT_EQ(called("api.cudaMalloc(&a.b, n)"), "cudaMalloc");
  EXPECT_EQ(called("api->cudaFree(p->q)"), "cudaFree");
  EXPECT_EQ(called("::cudaGetLastError()"), "cudaGetLastError");
}

// The error has cuDNN's details besides the name of the status.
TEST(GpuCall, OfCudnnHasItsDetails) {
  try {
    BELFRY_GPU_CALL(
        cudnnSetTensor4dDescriptor(nullptr, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 1, 1, 1),
        "for x");
    FAIL() << "a descriptor that is none was taken";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(),
                AllOf(StartsWith("cudnnSetTensor4dDescriptor failed: "), EndsWith("), for x")));
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDNN_STATUS_BAD_PARAM"));
  }
}

// The first call fails, and its details are not read.
TEST(GpuCall, OfCudnnHasNoDetailsOfCallsBeforeIt) {
  cudnnSetTensor4dDescriptor(nullptr, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 1, 1, 1);
  try {
    BELFRY_GPU_CALL(cudnnSetStream(nullptr, nullptr), "for x");
    FAIL() << "a handle that is none was taken";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("tensorDesc")));
    EXPECT_THAT(error.what(), StartsWith("cudnnSetStream failed: "));
  }
}

}  // namespace cuda_check_test
}  // namespace belfry::cuda
