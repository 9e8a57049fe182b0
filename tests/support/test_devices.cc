#include "belfry/tests/support/test_devices.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <gtest/gtest.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry::test {
namespace {

struct Asked {
  int gpus = 0;
  bool stand_in = false;
};

Asked asked() {
  constexpr std::string_view kStandIn = "stand_in:";
  const char* const given = std::getenv("BELFRY_TEST_GPUS");
  if (!given) return {};
  std::string_view number = given;
  Asked result{.stand_in = number.starts_with(kStandIn)};
  if (result.stand_in) number.remove_prefix(kStandIn.size());
  const char* const end = number.data() + number.size();
  const auto [at, error] = std::from_chars(number.data(), end, result.gpus);
  require(error == std::errc() && at == end && result.gpus > 0, "BELFRY_TEST_GPUS is '", given,
          "'; say e.g. 8, or stand_in:8");
  return result;
}

const char* device_type() {
  if (test_gpus() == 0) {
    testing::Test::RecordProperty("devices", "cpu");
    return "CPU";
  }
  use_test_gpus();
  testing::Test::RecordProperty("devices", "gpu");
  return "GPU";
}

}  // namespace

int test_gpus() { return asked().gpus; }

// Tests may have put other GPUs in their place.
void use_test_gpus() {
  if (!asked().stand_in) {
    require<DeviceError>(gpus().count() > 0,
                         "BELFRY_TEST_GPUS is set, but there are no GPUs: ", gpus().why_none());
    return;
  }
  static const StandInGpus backend(1);
  static const Gpus one(backend);
  set_gpus(&one);
}

std::string too_few_devices(int count) {
  if (test_gpus() == 0 || count <= test_gpus()) return "";
  return cat("needs ", count, " devices; BELFRY_TEST_GPUS gives ", test_gpus());
}

DeviceSpec device(int index) { return DeviceSpec::local(device_type(), index); }

std::vector<DeviceSpec> devices(int count) {
  std::vector<DeviceSpec> all;
  for (int i = 0; i < count; ++i) all.push_back(device(i));
  return all;
}

int logical_gpus() { return std::max(test_gpus(), 1); }

SessionOptions on_devices(int count, int threads) {
  return {.device_count = {{device_type(), count}},
          .logical_gpus = logical_gpus(),
          .deterministic = true,
          .threads = threads,
          .all_workers = threads > 0};
}

}  // namespace belfry::test
