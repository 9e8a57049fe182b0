// cuDNN gets the properties of a GPU that is not there, and compiles the graphs of attention for
// it. gpu_ops_tests tests their results.
#include "belfry/framework/cuda/runtime/cudnn_attention.h"

#include <iostream>
#include <string_view>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "belfry/framework/device/gpus.h"

namespace belfry::cuda {
namespace cudnn_attention_test {

const Where kHere{.device = "gpu:0"};

// Needs cuDNN 9.8 or later; the properties are in cuDNN's own words.
BackendDescriptor describe_h100() {
  constexpr auto kProperties = static_cast<cudnnBackendDescriptorType_t>(38);
  constexpr auto kAsJson = static_cast<cudnnBackendAttributeName_t>(2702);
  constexpr std::string_view kH100 = R"({"deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900,
      "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0,
      "supportCoopLaunch": 1, "multiProcessorCount": 132, "warpSize": 32, "maxCtasPerSM": 32,
      "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "regsPerBlock": 65536,
      "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
      "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
      "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
      "totalGlobalMem": 85029158912, "l2CacheSize": 52428800, "smClockRateKHz": 1980000,
      "memClockRateKHz": 2619000})";
  cudnnBackendDescriptor_t properties = nullptr;
  BELFRY_GPU_CALL(cudnnBackendCreateDescriptor(kProperties, &properties), kHere);
  BackendDescriptor h100(properties);
  BELFRY_GPU_CALL(cudnnBackendSetAttribute(properties, kAsJson, CUDNN_TYPE_CHAR,
                                           static_cast<std::int64_t>(kH100.size()), kH100.data()),
                  kHere);
  BELFRY_GPU_CALL(cudnnBackendFinalize(properties), kHere);
  return h100;
}

// Runs in its own process, as other tests must not have its driver. Exits with 0 if check(device,
// sink) finds no problem.
template <class Check>
[[noreturn]] void compile(const Check& check) {
  std::string problems;
  if (!dlopen(BELFRY_BIN_DIR "/../lib/libstand_in_driver.so", RTLD_NOW | RTLD_GLOBAL)) {
    problems = dlerror();
  } else {
    try {
      check(describe_h100().get(), problems);
    } catch (const Error& error) {
      problems += error.what();
    }
  }
  std::cerr << problems << std::flush;
  std::_Exit(problems.empty() ? 0 : 1);
}

class CudnnCompilesAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpus().backend()->versions().driver.empty())
      GTEST_SKIP() << "there is a driver: gpu_ops_tests compute attention";
    if (cudnnGetVersion() < 91600) GTEST_SKIP() << "cuDNN is older than 9.16";
  }
  template <class Check>
  static void expect(const Check& check) {
    EXPECT_EXIT(compile(check), testing::ExitedWithCode(0), "^$");
  }
};

// The GPTs of train_bench and of examples/gpt.cc, and one of odd times; with queries, keys and
// values apart and joined.
TEST_F(CudnnCompilesAttention, OfTransformersForAnH100) {
  expect([](cudnnBackendDescriptor_t h100, std::string& problems) {
    for (const auto& shape :
         {Attention{.batch = 64, .time = 256, .heads = 6, .head_dim = 64},
          Attention{.dtype = DType::kF16, .batch = 12, .time = 64, .heads = 4, .head_dim = 32},
          Attention{.batch = 3, .time = 50, .heads = 3, .head_dim = 40}})
      for (const auto& [gradient, joined] :
           {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
        Attention attention = shape;
        attention.gradient = gradient;
        attention.joined = joined;
        const auto found = CudnnAttention::algorithms(attention, kHere, h100);
        if (found.empty()) problems += cat("none for ", attention, "\n");
        for (const CudnnAlgorithm& algorithm : found)
          if (algorithm.deterministic) problems += cat(attention, " is said to repeat\n");
      }
  });
}

// A matrix of all pairs of 4096 times has 201 MB.
TEST_F(CudnnCompilesAttention, InMemoryThatGrowsWithTheTime) {
  expect([](cudnnBackendDescriptor_t h100, std::string& problems) {
    for (const bool gradient : {false, true}) {
      const Attention attention{
          .gradient = gradient, .batch = 1, .time = 4096, .heads = 6, .head_dim = 64};
      const std::int64_t pairs = std::int64_t{2} * 6 * 4096 * 4096;
      const auto found = CudnnAttention::algorithms(attention, kHere, h100);
      if (found.empty()) problems += cat("none for ", attention, "\n");
      for (const CudnnAlgorithm& algorithm : found)
        if (algorithm.workspace_bytes > (gradient ? pairs / 8 : 256))
          problems += cat(attention, " takes ", algorithm.workspace_bytes, " bytes\n");
    }
  });
}

// One tensor of queries, keys and values has three times the elements.
TEST_F(CudnnCompilesAttention, NotOfTensorsThatAnIntCannotCount) {
  expect([](cudnnBackendDescriptor_t h100, std::string& problems) {
    Attention large{.batch = 64, .time = 8192, .heads = 32, .head_dim = 64};
    if (CudnnAttention::algorithms(large, kHere, h100).empty()) problems += "none apart\n";
    large.joined = true;
    if (!CudnnAttention::algorithms(large, kHere, h100).empty()) problems += "some joined\n";
  });
}

TEST_F(CudnnCompilesAttention, NotOfHeadsThatItRefuses) {
  expect([](cudnnBackendDescriptor_t h100, std::string& problems) {
    for (const auto& refused :
         {Attention{.batch = 2, .time = 64, .heads = 2, .head_dim = 6},
          Attention{.gradient = true, .batch = 2, .time = 64, .heads = 2, .head_dim = 264},
          Attention{.batch = 2, .time = 1, .heads = 2, .head_dim = 64}})
      if (!CudnnAttention::algorithms(refused, kHere, h100).empty()) problems += cat(refused, "\n");
  });
}

// Without a GPU or its properties cuDNN refuses every graph; then the list is empty.
TEST_F(CudnnCompilesAttention, OnAGpuAlone) {
  EXPECT_TRUE(CudnnAttention::algorithms({.time = 64, .head_dim = 64}, kHere).empty());
  EXPECT_THROW(CudnnAttention({.time = 64, .head_dim = 64}, 0, kHere), DeviceError);
}

}  // namespace cudnn_attention_test
}  // namespace belfry::cuda
