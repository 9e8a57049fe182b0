// The devices of tests that CPUs and GPUs must pass alike. $BELFRY_TEST_GPUS says which:
//   (unset)      cpu:0, cpu:1, ...
//   K            gpu:0 to gpu:K-1, logical GPUs of the first physical one; tests that need more are
//                skipped. A test that asks for them fails if there is no GPU
//   stand_in:K   the same, on a stand-in for a GPU (stand_in_gpus.h)
//
//   BELFRY_NEED_DEVICES(towers);
//   Session session(graph, test::on_devices(towers));  // DeviceScope on(graph, test::device(0));
#pragma once
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/run/session.h"

namespace belfry::test {

// K of $BELFRY_TEST_GPUS; 0 if tests run on CPUs.
int test_gpus();
// Makes the test GPUs those of this process. Throws DeviceError if there is no GPU. The functions
// below that name devices call this.
void use_test_gpus();

// Why a test on so many devices must be skipped; "" if it need not be.
std::string too_few_devices(int count);

// The devices, by full names. A test that asks for them has the property "devices" in its report,
// cpu or gpu. By it scripts/gpu_check knows the tests that ran on GPUs.
DeviceSpec device(int index);
std::vector<DeviceSpec> devices(int count);
// SessionOptions::logical_gpus for these devices.
int logical_gpus();
// Options of a deterministic session with so many of these devices; with `threads` workers, all of
// which take part.
SessionOptions on_devices(int count, int threads = 0);

}  // namespace belfry::test

// Put it in a test, or its SetUp. It skips the test if there are fewer devices.
#define BELFRY_NEED_DEVICES(count)                                                                \
  if (const std::string belfry_why = ::belfry::test::too_few_devices(count); !belfry_why.empty()) \
  GTEST_SKIP() << belfry_why
