#include "belfry/framework/cuda/runtime/handles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpus.h"

namespace belfry::cuda {
namespace handles_test {

using testing::EndsWith;
using testing::StartsWith;

template <class Make>
std::string error_of(Make make) {
  try {
    make();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

TEST(Handles, WithoutADriverNameTheCallAndWhatItWasFor) {
  if (!gpus().backend()->versions().driver.empty()) GTEST_SKIP() << "there is a driver";
  const std::string why =
      "CUDA driver version is insufficient for CUDA runtime version "
      "(cudaErrorInsufficientDriver, 35)";
  EXPECT_EQ(error_of([] { make_stream("for strand 2"); }),
            cat("cudaDeviceGetStreamPriorityRange failed: ", why, ", for strand 2"));
  EXPECT_EQ(error_of([] { make_event("for strand 2"); }),
            cat("cudaEventCreateWithFlags failed: ", why, ", for strand 2"));
  EXPECT_EQ(error_of([] { allocate(64, "for the arena"); }),
            cat("cudaMalloc failed: ", why, ", 64 bytes for the arena"));
  EXPECT_EQ(error_of([] { allocate_pinned(64, "for signals"); }),
            cat("cudaHostAlloc failed: ", why, ", 64 bytes for signals"));
  EXPECT_EQ(error_of([] { DeviceGuard guard(0); }),
            cat("cudaGetDevice failed: ", why, ", to go to GPU 0"));
  EXPECT_THAT(error_of([] { make_cudnn("for strand 2"); }), StartsWith("cudnnCreate failed: "));
  EXPECT_THAT(error_of([] { make_cudnn("for strand 2"); }),
              EndsWith("CUDNN_STATUS_NOT_INITIALIZED, 1001), for strand 2"));
  EXPECT_THAT(error_of([] { make_cublas_lt("for strand 2"); }),
              EndsWith("(CUBLAS_STATUS_NOT_INITIALIZED, 1), for strand 2"));
}

TEST(Handles, OfAGpuAreMadeAndFreed) {
  if (gpus().count() == 0) GTEST_SKIP() << gpus().why_none();
  const DeviceGuard guard(gpus().count() - 1);
  EXPECT_NE(make_stream("in a test"), nullptr);
  EXPECT_NE(make_event("in a test"), nullptr);
  EXPECT_NE(allocate(64, "in a test"), nullptr);
  EXPECT_NE(allocate_pinned(64, "in a test"), nullptr);
  EXPECT_NE(make_cudnn("in a test"), nullptr);
  EXPECT_NE(make_cublas_lt("in a test"), nullptr);
}

}  // namespace handles_test
}  // namespace belfry::cuda
