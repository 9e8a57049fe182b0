#include "belfry/allreduce/prediction/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace machine_test {

using testing::HasSubstr;

std::string refusal(const char* text) {
  try {
    parse_machine(JsonValue::parse(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(MachineDescription, ReadsLinksInBothDirectionsAndTheOthersFromOnePlace) {
  const MachineDescription machine = parse_machine(JsonValue::parse(
      R"({"devices": ["gpu:0", "gpu:1", "cpu:0"],
          "links": [{"devices": ["gpu:1", "gpu:0"], "latency_us": 9, "gbps": 18}],
          "other_links": {"latency_us": 20, "gbps": 7.5, "bus": "host"}})"));
  ASSERT_EQ(machine.devices.size(), 3u);
  EXPECT_EQ(machine.devices[1], DeviceSpec::local("GPU", 1));
  const Link nvlink{.latency_us = 9, .gbps = 18},
      host{.latency_us = 20, .gbps = 7.5, .bus = "host"};
  EXPECT_EQ(machine.links[0][1], nvlink);
  EXPECT_EQ(machine.links[1][0], nvlink);
  EXPECT_EQ(machine.links[0][2], host);
  EXPECT_EQ(machine.links[2][1], host);
  EXPECT_EQ(machine.workers, 0);
  EXPECT_EQ(machine.launch_us, 5);
  EXPECT_EQ(machine.bandwidth_at(1 << 20).one_gbps, 500);
  EXPECT_EQ(machine.index_of("/job:localhost/replica:0/task:0/device:CPU:0"), 2);
}

TEST(MachineDescription, WritesWhatItReads) {
  for (
      const char* text :
      {R"({"devices": ["gpu:0", "gpu:1"], "launch_us": 3, "wait_us": 0.5,
            "other_links": {"gbps": 2, "bus": "b"}})",
       R"({"devices": ["cpu:0", "cpu:1"], "workers": 2, "run_us": 1.5, "wake_us": 3.5, "share_us": 0.25,
            "bandwidth": [{"bytes": 1024, "one_gbps": 40, "all_gbps": 80, "other_gbps": 20,
                           "write": 1.5, "rewrite": 0.25},
                          {"bytes": 65536, "one_gbps": 30}]})"}) {
    const MachineDescription machine = parse_machine(JsonValue::parse(text));
    EXPECT_EQ(parse_machine(JsonValue::parse(to_json(machine).str(2))), machine) << text;
  }
}

TEST(MachineDescription, InterpolatesBandwidthInTheLogarithmOfBytes) {
  MachineDescription machine;
  machine.bandwidth = {{1000, 40, 80}, {100000, 20, 30}};
  EXPECT_EQ(machine.bandwidth_at(1).one_gbps, 40);
  EXPECT_EQ(machine.bandwidth_at(1000).all_gbps, 80);
  EXPECT_DOUBLE_EQ(machine.bandwidth_at(10000).one_gbps, 30);
  EXPECT_DOUBLE_EQ(machine.bandwidth_at(10000).all_gbps, 55);
  EXPECT_EQ(machine.bandwidth_at(100000).all_gbps, 30);
  EXPECT_EQ(machine.bandwidth_at(1000000000).one_gbps, 20);
  EXPECT_EQ(machine.bandwidth_at(10000).write, 2);
  machine.bandwidth[1].write = 1;
  machine.bandwidth[1].rewrite = 0;
  EXPECT_DOUBLE_EQ(machine.bandwidth_at(10000).write, 1.5);
  EXPECT_DOUBLE_EQ(machine.bandwidth_at(10000).rewrite, 0.5);
}

TEST(MachineDescription, LetsDevicesOfARunStandForItsOwn) {
  MachineDescription machine;
  machine.devices = {"/device:GPU:0", "/device:GPU:1", "/device:CPU:0"};
  EXPECT_EQ(machine.devices_for({"/device:CPU:0", "/device:GPU:1"}),
            (std::vector<DeviceSpec>{"/device:CPU:0", "/device:GPU:1"}));
  EXPECT_EQ(machine.devices_for({"/device:CPU:0", "/device:CPU:1"}),
            (std::vector<DeviceSpec>{"/device:GPU:0", "/device:GPU:1"}));
  // The host does not count as a third GPU.
  EXPECT_THROW(machine.devices_for(std::vector<DeviceSpec>(3, "/device:CPU:7")), InvalidArgument);
}

TEST(MachineDescription, SaysWhatIsWrongWithADescription) {
  EXPECT_THAT(refusal("{}"), HasSubstr("no member 'devices'"));
  EXPECT_THAT(refusal("[]"), HasSubstr("object"));
  EXPECT_THAT(refusal(R"({"devices": []})"), HasSubstr("without devices"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu"]})"), HasSubstr("'gpu' does not name one device"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0", "/gpu:0"]})"), HasSubstr("GPU:0 is there twice"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "linsk": []})"),
              HasSubstr("line 1, column 33: a machine has an unknown member \"linsk\"; did you "
                        "mean 'links'"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0", "gpu:1"], "links": []})"),
              HasSubstr("no link between GPU:0 and GPU:1"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0", "gpu:1"],
                          "links": [{"devices": ["gpu:0", "gpu:2"], "gbps": 1}]})"),
              HasSubstr("no device GPU:2 (devices: GPU:0, GPU:1)"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "links": [{"devices": ["gpu:0", "gpu:0"],
                          "gbps": 1}]})"),
              HasSubstr("to itself"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0", "gpu:1"],
                          "links": [{"devices": ["gpu:0", "gpu:1"], "gbps": 1},
                                    {"devices": ["gpu:1", "gpu:0"], "gbps": 2}]})"),
              HasSubstr("the link between gpu:1 and gpu:0 is there twice"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0", "gpu:1024"]})"),
              HasSubstr("'gpu:1024': a machine has at most 1024 devices of a type"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "links": [{"devices": ["gpu:0"], "gbps": 1}]})"),
              HasSubstr("1 devices instead of two"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "other_links": {"gbps": 0}})"),
              HasSubstr("\"gbps\" of a machine must be above 0"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "other_links": {"latency_us": 1}})"),
              HasSubstr("no member 'gbps'"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "launch_us": -1})"), HasSubstr("at least 0"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "workers": 2, "other_links": {"gbps": 1}})"),
              HasSubstr("not both"));
  EXPECT_THAT(refusal(R"({"devices": ["cpu:0", "cpu:1"], "other_links": {"gbps": 1}})"),
              HasSubstr("share one memory"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "workers": 2000})"), HasSubstr("1024"));
  EXPECT_THAT(refusal(R"({"devices": ["gpu:0"], "bandwidth": [{"bytes": 4, "one_gbps": 1},
                          {"bytes": 4, "one_gbps": 1}]})"),
              HasSubstr("grow"));
}

}  // namespace machine_test
}  // namespace belfry
