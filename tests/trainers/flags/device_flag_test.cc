#include "belfry/trainers/flags/device_flag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/device/fake_gpus.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/trainers/flags/flag_parser.h"

namespace belfry {
namespace device_flag_test {

using test::FakeGpus;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> names(std::string_view devices) {
  std::vector<std::string> result;
  for (const DeviceSpec& device : parse_devices(devices, "--devices"))
    result.push_back(device.str());
  return result;
}

std::string device_refusal(std::string_view devices) {
  try {
    parse_devices(devices, "--devices");
  } catch (const FlagError& error) {
    return error.what();
  }
  return "(accepted)";
}

std::string cpu(int index) {
  return "/job:localhost/replica:0/task:0/device:CPU:" + std::to_string(index);
}

std::string gpu(int index) {
  return "/job:localhost/replica:0/task:0/device:GPU:" + std::to_string(index);
}

TEST(DevicesFlag, CountsWithOneTypeAndNumber) {
  EXPECT_EQ(names("cpu:4"), (std::vector{cpu(0), cpu(1), cpu(2), cpu(3)}));
  EXPECT_EQ(names("CPU:1"), std::vector{cpu(0)});
  EXPECT_EQ(names("gpu:2"), (std::vector{gpu(0), gpu(1)}));
  EXPECT_EQ(names("gpu:1024").size(), 1024u);
}

TEST(DevicesFlag, NamesDevicesInListsAndAfterSlashes) {
  EXPECT_EQ(names("/cpu:1"), std::vector{cpu(1)});
  EXPECT_EQ(names("cpu:0,cpu:2"), (std::vector{cpu(0), cpu(2)}));
  EXPECT_EQ(names("cpu:3,/device:CPU:1"), (std::vector{cpu(3), cpu(1)}));
  EXPECT_EQ(names(cpu(5)), std::vector{cpu(5)});
  EXPECT_EQ(names("/gpu:1"), std::vector{gpu(1)});
  EXPECT_EQ(names("gpu:2,gpu:0"), (std::vector{gpu(2), gpu(0)}));
  EXPECT_EQ(names("/cpu:0,/cpu:1"), (std::vector{cpu(0), cpu(1)}));
  EXPECT_EQ(names("/gpu:1,/cpu:0,/device:gpu:0"), (std::vector{gpu(1), cpu(0), gpu(0)}));
}

TEST(DevicesFlag, RefusesDuplicates) {
  EXPECT_EQ(device_refusal("cpu:1,cpu:1"),
            cat("--devices: ", cpu(1), " is named twice; each tower needs its own"));
  EXPECT_THAT(device_refusal("/cpu:0,/device:CPU:0"), HasSubstr("named twice"));
  EXPECT_THAT(device_refusal("gpu:0,gpu:1,/GPU:0"), HasSubstr(cat(gpu(0), " is named twice")));
}

TEST(DevicesFlag, RefusesWhatIsNoDevice) {
  const std::pair<const char*, const char*> refused[] = {
      {"", "neither a count"},
      {",", "write names with one comma between, such as cpu:0,cpu:1"},
      {"cpu", "neither a count"},
      {"gpu", "neither a count"},
      {"4", "neither a count"},
      {"cpu:0",
       "is a count; it must be between 1 and 1024 (one device is named with a slash: "
       "/cpu:0)"},
      {"gpu:0", "(one device is named with a slash: /gpu:0)"},
      {"cpu:x", "--devices: 'cpu:x': 'x' is not a whole number"},
      {"gpu:1.5", "--devices: 'gpu:1.5': '1.5' is not a whole number"},
      {"cpu:-2", "is a count"},
      {"gpu:-1", "is a count"},
      {"cpu:1000000", "between 1 and 1024"},
      {"gpu:1025", "between 1 and 1024"},
      {"cpu:99999999999", "between 1 and 1024"},
      {"tpu:2", "--devices: 'tpu:2': there are no TPU devices; use cpu:N or gpu:N"},
      {"gpu:0,tpu:0", "--devices"},
      {"/device:XLA_GPU:0", "there are no XLA_GPU devices"},
      {"cpu:0,", "empty"},
      {",cpu:0", "empty"},
      {"gpu:0,,gpu:1", "empty"},
      {"/cpu:*", "does not name one device"},
      {"/gpu", "does not name one device"},
      {"gpu,cpu", "does not name one device"},
      {"/foo:1", "--devices"},
      {"/gpu:0/gpu:1", "--devices"},
      {"/gpu:-1", "--devices"},
      {"/cpu:5000", "at most"},
      {"/gpu:1024", "at most"},
      {"cpu:1000,gpu:30", "1001 CPU and 31 GPU devices"},
      {"/job:worker/cpu:0", "not in this process"},
      {"/gpu:0,/task:1/gpu:1", "not in this process"}};
  for (const auto& [text, why] : refused)
    EXPECT_THAT(device_refusal(text), HasSubstr(why)) << "'" << text << "'";
}

// A command line with these flags.
struct Typed {
  std::string list, logical_gpus = {}, algorithms = {};  // "": the flag is not given
  bool deterministic = false;
};

// The variables that its flags set.
struct Devices {
  std::vector<DeviceSpec> devices;
  int logical_gpus = 1;
  bool deterministic = false;
  std::string algorithms;
};

Devices read(const Typed& typed, bool plans, const std::function<const Gpus&()>& find = gpus) {
  Devices read;
  const DeviceFlags flags{read.devices, read.logical_gpus, read.deterministic, read.algorithms};
  FlagParser parser("A program.", "test");
  add_device_flags(parser, flags);
  std::vector<std::string> texts;
  if (!typed.list.empty()) texts.push_back("--devices=" + typed.list);
  if (!typed.logical_gpus.empty()) texts.push_back("--logical_gpus=" + typed.logical_gpus);
  if (!typed.algorithms.empty()) texts.push_back("--algorithms=" + typed.algorithms);
  if (typed.deterministic) texts.emplace_back("--deterministic");
  std::vector<const char*> arguments;
  for (const std::string& text : texts) arguments.push_back(text.c_str());
  parser.parse(arguments);
  resolve_devices(parser, flags, plans, find);
  return read;
}

// The error about these flags on a machine with so many GPUs; "" if they are accepted.
std::string refusal_with(int count, const Typed& typed, bool plans = false) {
  const FakeGpus backend(count, "no NVIDIA driver is installed");
  const Gpus found(backend);
  try {
    read(typed, plans, [&]() -> const Gpus& { return found; });
  } catch (const FlagError& error) {
    return error.what();
  }
  return "";
}

// What read() gives on a machine with so many GPUs.
std::vector<DeviceSpec> devices_with(int count, const Typed& typed) {
  const FakeGpus backend(count, "no NVIDIA driver is installed");
  const test::UseGpus use(backend);
  return read(typed, false).devices;
}

TEST(DevicesFlag, IsAllGpusOrElseOneCpuUnlessItIsGiven) {
  EXPECT_EQ(devices_with(0, {}), parse_devices("cpu:1"));
  EXPECT_EQ(devices_with(3, {}), parse_devices("gpu:3"));
  EXPECT_EQ(devices_with(1, {.logical_gpus = "4"}), parse_devices("gpu:4"));
  EXPECT_EQ(devices_with(2, {"gpu:all"}), parse_devices("gpu:2"));
  EXPECT_EQ(devices_with(2, {.list = "GPU:all", .logical_gpus = "2"}), parse_devices("gpu:4"));
  EXPECT_EQ(devices_with(8, {"cpu:2"}), parse_devices("cpu:2"));
  try {
    devices_with(0, {.logical_gpus = "4"});
    FAIL();
  } catch (const FlagError& error) {
    EXPECT_STREQ(error.what(),
                 "--logical_gpus=4 has no use for --devices=cpu:1, which names no GPU; say e.g. "
                 "--devices=gpu:4");
  }
}

TEST(DevicesFlag, SaysThatThereAreNoGpusForAll) {
  try {
    devices_with(0, {"gpu:all"});
    FAIL();
  } catch (const FlagError& error) {
    EXPECT_STREQ(error.what(),
                 "--devices=gpu:all: there are no GPU devices: no NVIDIA driver is installed; use "
                 "cpu:N, or plan for N GPUs with gpu:N and --dry_run");
  }
}

TEST(DevicesFlag, SaysWhyThereAreNoGpus) {
  for (const std::string text : {"gpu:2", "/gpu:0", "cpu:0,gpu:0"})
    EXPECT_EQ(refusal_with(0, {text}),
              cat("--devices: '", text,
                  "': there are no GPU devices: no NVIDIA driver is installed; use cpu:N, or plan "
                  "for GPUs with a training program's --dry_run"));
  EXPECT_THAT(refusal_with(0, {"gpu:8", "8"}), HasSubstr("no NVIDIA driver is installed"))
      << "none cannot be made eight";
}

TEST(DevicesFlag, TakesGpusThatExist) {
  const std::tuple<int, const char*, const char*> existing[] = {
      {1, "gpu:1", ""},  {1, "/gpu:0", ""},      {2, "gpu:2", ""},
      {8, "gpu:8", ""},  {8, "gpu:7,gpu:0", ""}, {2, "/gpu:1,/cpu:3", ""},
      {1, "gpu:8", "8"}, {1, "gpu:2", "8"},      {2, "gpu:8", "4"},
      {2, "gpu:7", "4"}, {8, "gpu:1024", "128"}, {1, "gpu:1024", "1024"}};
  for (const auto& [count, list, logical] : existing) {
    const FakeGpus backend(count);
    EXPECT_EQ(refusal_with(count, {list, logical}), "") << list;
  }
}

TEST(DevicesFlag, RefusesMoreGpusThanExistAndSaysHowManyLogicalOnesWouldDo) {
  EXPECT_EQ(refusal_with(1, {"gpu:8"}),
            "--devices: 'gpu:8' needs 8 GPUs, but this machine has 1; use --logical_gpus=8, which "
            "makes so many of each, or plan with a training program's --dry_run");
  EXPECT_EQ(refusal_with(2, {"gpu:8", "2"}),
            "--devices: 'gpu:8' needs 8 GPUs, but this machine has 2, as 4 logical ones; use "
            "--logical_gpus=4, which makes so many of each, or plan with a training program's "
            "--dry_run");
  const std::tuple<int, const char*, const char*, const char*> others[] = {
      {2, "gpu:3", "", "has 2; use --logical_gpus=2,"},
      {2, "gpu:8", "", "has 2; use --logical_gpus=4,"},
      {8, "gpu:9", "", "has 8; use --logical_gpus=2,"},
      {8, "gpu:1024", "", "has 8; use --logical_gpus=128,"},
      {2, "/gpu:2", "", "'/gpu:2' needs 3 GPUs, but this machine has 2; use --logical_gpus=2,"},
      {1, "gpu:0,gpu:4", "4",
       "needs 5 GPUs, but this machine has 1, as 4 logical ones; use "
       "--logical_gpus=5,"}};
  for (const auto& [count, list, logical, why] : others)
    EXPECT_THAT(refusal_with(count, {list, logical}), HasSubstr(why));
}

TEST(DevicesFlag, PlansForGpusOnAnyMachine) {
  for (const int count : {0, 1, 2, 8})
    for (const char* list : {"gpu:8", "/gpu:1", "gpu:5,gpu:2", "cpu:0,gpu:0"})
      for (const char* logical : {"", "1", "8"})
        EXPECT_EQ(refusal_with(count, {list, logical}, true), "");
}

TEST(DevicesFlag, AsksForGpusOnlyToRunOnThem) {
  const auto never = []() -> const Gpus& { throw DeviceError("it was asked"); };
  EXPECT_EQ(read({"cpu:3"}, false, never).devices.size(), 3u);
  EXPECT_EQ(read({"gpu:8", "4"}, true, never).logical_gpus, 4);
  EXPECT_EQ(read({"gpu:8"}, true, never).logical_gpus, 1);
  EXPECT_THROW(read({"gpu:8,"}, false, never), FlagError);
  EXPECT_THROW(read({"gpu:1"}, false, never), DeviceError);
}

TEST(LogicalGpusFlag, RefusesNumbersThatCannotBeAndCpus) {
  for (const bool plans : {false, true}) {
    for (const std::string number : {"0", "-1", "1025", "x", "2.5", "4gpus"})
      EXPECT_EQ(refusal_with(8, {"gpu:8", number}, plans),
                cat("--logical_gpus=", number, " is not a whole number between 1 and 1024"));
    EXPECT_EQ(refusal_with(8, {"cpu:2", "4"}, plans),
              "--logical_gpus=4 has no use for --devices=cpu:2, which names no GPU; say e.g. "
              "--devices=gpu:4");
    EXPECT_THAT(refusal_with(8, {"/cpu:0,/cpu:1", "1"}, plans), HasSubstr("names no GPU"));
  }
}

TEST(AlgorithmsFlag, IsForRunsOnGpus) {
  const Typed on_gpus{.list = "gpu:1", .algorithms = "chosen.json"};
  EXPECT_EQ(refusal_with(1, on_gpus), "");
  EXPECT_THAT(refusal_with(0, on_gpus), HasSubstr("there are no GPU devices"));
  EXPECT_EQ(refusal_with(1, on_gpus, true),
            "--algorithms=chosen.json has no use for a plan, which chooses none; leave it out");
  EXPECT_EQ(
      refusal_with(1, {.list = "cpu:2", .algorithms = "chosen.json"}),
      "--algorithms=chosen.json has no use for --devices=cpu:2, which names no GPU: only there "
      "is a choice of algorithms");
}

TEST(DeterministicFlag, IsTakenOnAllDevices) {
  EXPECT_TRUE(read({.list = "cpu:2", .deterministic = true}, false).deterministic);
  EXPECT_TRUE(read({.list = "gpu:8", .deterministic = true}, true).deterministic);
  EXPECT_FALSE(read({.list = "cpu:2"}, false).deterministic);
}

}  // namespace device_flag_test
}  // namespace belfry
