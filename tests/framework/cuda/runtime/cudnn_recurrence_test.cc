// What cuDNN says of recurrences without a GPU. gpu_ops_tests tests their results.
#include "belfry/framework/cuda/runtime/cudnn_recurrence.h"

#include <iostream>

#include <gtest/gtest.h>

#include "belfry/framework/device/gpus.h"

namespace belfry::cuda {
namespace cudnn_recurrence_test {

using Cell = Recurrence::Cell;
const Where kHere{.device = "gpu:0"};

const Recurrence kRecurrences[] = {
    {.cell = Cell::kLstm, .batch = 3, .time = 4, .features = 5, .hidden = 7},
    {.cell = Cell::kGru, .batch = 3, .time = 4, .features = 5, .hidden = 7},
    {.cell = Cell::kLstm, .dtype = DType::kF64, .batch = 1, .time = 1, .features = 1, .hidden = 1},
    {.cell = Cell::kGru, .compute = Compute::kTf32, .time = 9, .features = 64, .hidden = 256},
};

TEST(CudnnRecurrence, IsDescribedWithoutAGpu) {
  for (const Recurrence& of : kRecurrences)
    EXPECT_NO_THROW(CudnnRecurrence(of, CUDNN_RNN_ALGO_STANDARD, kHere)) << of.str();
  EXPECT_THROW(CudnnRecurrence({.hidden = -1}, CUDNN_RNN_ALGO_STANDARD, kHere), DeviceError);
}

// cuDNN makes no handle without a GPU. To say where weights lie it reads nothing of the handle that
// matters here, so memory of zeros stands in for one, in its own process.
[[noreturn]] void compare_packing() {
  std::vector<char> zeros(1 << 20);
  std::string problems;
  for (const Recurrence& of : kRecurrences)
    if (!CudnnRecurrence(of, CUDNN_RNN_ALGO_STANDARD, kHere)
             .packs_like_us(reinterpret_cast<cudnnHandle_t>(zeros.data()), kHere))
      problems += cat(of, " has its weights in another order\n");
  std::cerr << problems << std::flush;
  std::_Exit(problems.empty() ? 0 : 1);
}

TEST(CudnnRecurrence, PacksWeightsAsOurKernelsPackThem) {
  if (!gpus().backend()->versions().driver.empty())
    GTEST_SKIP() << "there is a driver: gpu_ops_tests compute recurrences";
  if (cudnnGetVersion() < 91900 || cudnnGetVersion() >= 92000)
    GTEST_SKIP() << "not known of this version of cuDNN";
  EXPECT_EXIT(compare_packing(), testing::ExitedWithCode(0), "^$");
}

}  // namespace cudnn_recurrence_test
}  // namespace belfry::cuda
