#include "belfry/framework/cuda/runtime/presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry::cuda {
namespace presence_test {

// CUDA's answers if a driver for CUDA 13.1 is installed.
Presence answer(int count, cudaError_t status, std::optional<std::string> visible = {}) {
  return {.count = count, .status = status, .driver = 13010, .runtime = 13000, .visible = visible};
}

TEST(Presence, OfGpusNeedsNoReason) {
  EXPECT_EQ(why_none(answer(1, cudaSuccess)), "");
  EXPECT_EQ(why_none(answer(8, cudaSuccess, "0,1,2,3,4,5,6,7")), "");
}

TEST(Presence, SaysThatThereIsNoDriver) {
  Presence found = answer(0, cudaErrorInsufficientDriver);
  found.driver = 0;
  EXPECT_EQ(why_none(found), "no NVIDIA driver is installed");
  found.visible = "";
  EXPECT_EQ(why_none(found), "no NVIDIA driver is installed");
}

TEST(Presence, SaysThatTheDriverIsTooOld) {
  Presence found = answer(0, cudaErrorInsufficientDriver);
  found.driver = 12040;
  EXPECT_EQ(why_none(found),
            "the NVIDIA driver is too old: it serves CUDA up to 12.4, and this build needs 13.0; "
            "install a newer driver");
}

TEST(Presence, SaysThatThereIsNoDevice) {
  EXPECT_EQ(why_none(answer(0, cudaErrorNoDevice)), "the NVIDIA driver finds no GPU");
  EXPECT_EQ(why_none(answer(0, cudaSuccess)), "the NVIDIA driver finds no GPU");
}

TEST(Presence, SaysThatAllDevicesAreHidden) {
  EXPECT_EQ(why_none(answer(0, cudaErrorNoDevice, "")),
            "all GPUs are hidden: CUDA_VISIBLE_DEVICES is empty");
  EXPECT_EQ(why_none(answer(0, cudaErrorNoDevice, "-1")),
            "no GPU is visible: CUDA_VISIBLE_DEVICES is '-1'");
}

TEST(Presence, GivesTheTextOfOtherErrors) {
  EXPECT_EQ(why_none(answer(0, cudaErrorUnknown)),
            "CUDA finds no GPU: unknown error (cudaErrorUnknown, 999)");
}

TEST(Presence, IsAskedWithoutLeavingAnErrorBehind) {
  const Presence found = find_devices();
  EXPECT_EQ(found.count > 0, why_none(found).empty());
  EXPECT_GE(found.runtime, 12000);
  if (found.driver > 0) {
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  } else {  // every call fails so, even the one above
    EXPECT_EQ(found.count, 0);
    EXPECT_EQ(found.status, cudaErrorInsufficientDriver);
  }
}

TEST(Presence, WritesUuidsAsNvidiaSmiDoes) {
  cudaUUID_t uuid{};
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(0xf0 - 15 * i);
  EXPECT_EQ(uuid_text(uuid), "GPU-f0e1d2c3-b4a5-9687-7869-5a4b3c2d1e0f");
}

TEST(Presence, WritesVersionsOfCuda) {
  EXPECT_EQ(cuda_version(13000), "13.0");
  EXPECT_EQ(cuda_version(12040), "12.4");
}

}  // namespace presence_test
}  // namespace belfry::cuda
