#include "belfry/trainers/device_flag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/gpus.h"
#include "belfry/trainers/flag_values.h"

namespace belfry {
namespace device_flag_test {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> names(std::string_view devices) {
  std::vector<std::string> result;
  for (const DeviceSpec& device : parse_devices(devices)) result.push_back(device.str());
  return result;
}

std::string device_refusal(std::string_view devices) {
  try {
    parse_devices(devices);
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

std::string cpu(int index) {
  return "/job:localhost/replica:0/task:0/device:CPU:" + std::to_string(index);
}

TEST(DevicesFlag, CountsWithOneTypeAndNumber) {
  EXPECT_EQ(names("cpu:4"), (std::vector{cpu(0), cpu(1), cpu(2), cpu(3)}));
  EXPECT_EQ(names("CPU:1"), std::vector{cpu(0)});
}

TEST(DevicesFlag, NamesDevicesInListsAndAfterSlashes) {
  EXPECT_EQ(names("/cpu:1"), std::vector{cpu(1)});
  EXPECT_EQ(names("cpu:0,cpu:2"), (std::vector{cpu(0), cpu(2)}));
  EXPECT_EQ(names("cpu:3,/device:CPU:1"), (std::vector{cpu(3), cpu(1)}));
  EXPECT_EQ(names(cpu(5)), std::vector{cpu(5)});
}

TEST(DevicesFlag, RefusesDuplicates) {
  EXPECT_THAT(device_refusal("cpu:1,cpu:1"), HasSubstr("named twice"));
  EXPECT_THAT(device_refusal("/cpu:0,/device:CPU:0"), HasSubstr("named twice"));
}

TEST(DevicesFlag, RefusesWhatIsNoDevice) {
  EXPECT_THAT(device_refusal(""), HasSubstr("neither a count"));
  EXPECT_THAT(device_refusal("cpu"), HasSubstr("neither a count"));
  EXPECT_THAT(device_refusal("4"), HasSubstr("neither a count"));
  EXPECT_THAT(device_refusal("cpu:0"), AllOf(HasSubstr("is a count"), HasSubstr("/cpu:0")));
  EXPECT_THAT(device_refusal("cpu:x"), HasSubstr("--devices: 'cpu:x': 'x' is not a whole number"));
  EXPECT_THAT(device_refusal("cpu:-2"), HasSubstr("is a count"));
  EXPECT_THAT(device_refusal("cpu:1000000"), HasSubstr("between 1 and 1024"));
  EXPECT_THAT(device_refusal("cpu:99999999999"), HasSubstr("between 1 and 1024"));
  EXPECT_EQ(device_refusal("tpu:2"), "--devices: 'tpu:2': there are no TPU devices; use cpu:N");
  EXPECT_THAT(device_refusal("cpu:0,"), HasSubstr("empty"));
  EXPECT_THAT(device_refusal(",cpu:0"), HasSubstr("empty"));
  EXPECT_THAT(device_refusal("/cpu:*"), HasSubstr("does not name one device"));
  EXPECT_THAT(device_refusal("/cpu"), HasSubstr("does not name one device"));
  EXPECT_THAT(device_refusal("/foo:1"), HasSubstr("--devices"));
  EXPECT_THAT(device_refusal("/cpu:5000"), HasSubstr("at most"));
  EXPECT_THAT(device_refusal("/job:worker/cpu:0"), HasSubstr("not in this process"));
}

TEST(DevicesFlag, SaysWhyThereAreNoGpus) {
  for (const char* text : {"gpu:2", "/gpu:0"})
    EXPECT_EQ(device_refusal(text),
              cat("--devices: '", text, "': there are no GPU devices: ", why_no_gpu_devices(),
                  "; use cpu:N, or plan for GPUs with --dry_run"));
}

}  // namespace device_flag_test
}  // namespace belfry
