// The devices of tests that CPUs and GPUs must pass alike. $BELFRY_TEST_GPUS says which:
//   (unset)      cpu:0, cpu:1, ...
//   K            gpu:0 to gpu:K-1, logical GPUs of the first physical one; tests that need more are
//                skipped. What asks for them fails where there is no GPU
//   stand_in:K   the same, on a GPU that is stood in for (stand_in_gpus.h)
//
//   BELFRY_NEED_DEVICES(towers);
//   Session session(graph, test::on_devices(towers));  // DeviceScope on(graph, test::device(0));
#pragma once
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/run/session.h"

namespace belfry::test {

// K; 0 if tests run on CPUs.
int test_gpus();
// Makes them those of this process. Throws DeviceError where there is no GPU. The functions below
// that name devices do so themselves.
void use_test_gpus();

// Why a test on so many devices must be skipped; "" if it need not be.
std::string too_few_devices(int count);

// The devices, by full names. The report of a test that asks has the property "devices", cpu or
// gpu, by which scripts/gpu_check knows the tests that ran on GPUs.
DeviceSpec device(int index);
std::vector<DeviceSpec> devices(int count);
// As in SessionOptions, for them.
int logical_gpus();
// Of a deterministic session that has so many of them; with `threads` workers, all of which take
// part.
SessionOptions on_devices(int count, int threads = 0);

}  // namespace belfry::test

// In a test, or its SetUp: skips it if there are fewer.
#define BELFRY_NEED_DEVICES(count)                                                                \
  if (const std::string belfry_why = ::belfry::test::too_few_devices(count); !belfry_why.empty()) \
  GTEST_SKIP() << belfry_why
