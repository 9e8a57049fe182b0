#include "belfry/trainers/measure_machine.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/tests/framework/memory_file_system.h"
#include "belfry/trainers/device_flag.h"

namespace belfry {
namespace measure_machine_test {

using testing::HasSubstr;

constexpr const char* kCached = "/cache/machine-2-devices-2-threads.json";

Machine cheap() {
  return {.devices = parse_devices("cpu:2"), .workers = 2, .run_us = 1, .bandwidth = {{1, 10, 20}}};
}

Machine measured(std::span<const DeviceSpec> devices, int threads) {
  return {.devices = {devices.begin(), devices.end()},
          .workers = threads,
          .run_us = 2,
          .bandwidth = {{1, 10, 20}}};
}

MachineOptions options() { return {.threads = 2, .cache = "/cache", .measure = measured}; }

void write(FileSystem& files, const std::string& path, const std::string& text) {
  files.create_directory("/cache");
  write_text_file(files, path, text);
}

TEST(MeasureMachine, TimesWhatItCanAndKeepsItForTheNextTime) {
  MemoryFileSystem files("/cache");
  const std::vector<DeviceSpec> devices = parse_devices("cpu:2");
  const auto measure = [](std::span<const DeviceSpec> all, int threads) {
    return measure_machine(all, threads, 1 << 20);  // more takes long under sanitizers
  };
  const Machine machine =
      find_machine(files, devices, {.threads = 2, .cache = "/cache", .measure = measure});
  EXPECT_EQ(machine.devices, devices);
  EXPECT_EQ(machine.workers, 2);
  EXPECT_GT(machine.run_us, 0);
  EXPECT_EQ(machine.bandwidth.size(), 6u);  // from 32 KiB to 1 MiB
  for (const Bandwidth& point : machine.bandwidth) {
    EXPECT_GT(point.one_gbps, 0);
    EXPECT_GT(point.all_gbps, 0);
  }
  EXPECT_TRUE(machine.links.empty());
  ASSERT_TRUE(files.exists(kCached));
  EXPECT_EQ(find_machine(files, devices, options()), machine);
}

TEST(FindMachine, TakesWhatWasKept) {
  MemoryFileSystem files("/cache");
  write(files, kCached, to_json(cheap()).str());
  EXPECT_EQ(find_machine(files, parse_devices("cpu:2"), options()), cheap());
}

TEST(FindMachine, MeasuresAgainWhereItIsAskedToOrTheFileIsNoUse) {
  for (const char* kept : {"{", R"({"devices": ["cpu:0", "cpu:7"]})"}) {
    MemoryFileSystem files("/cache");
    write(files, kCached, kept);
    EXPECT_EQ(find_machine(files, parse_devices("cpu:2"), options()).run_us, 2) << kept;
  }
  MemoryFileSystem files("/cache");
  write(files, kCached, to_json(cheap()).str());
  MachineOptions again = options();
  again.remeasure = true;
  EXPECT_EQ(find_machine(files, parse_devices("cpu:2"), again).run_us, 2);
  EXPECT_EQ(find_machine(files, parse_devices("cpu:2"), options()).run_us, 2);
}

TEST(FindMachine, ReadsAFileOfLinksInstead) {
  MemoryFileSystem files("/cache");
  write(files, "/cache/links.json", R"({"devices": ["gpu:0"], "launch_us": 7})");
  MachineOptions described = options();
  described.links = "/cache/links.json";
  EXPECT_EQ(find_machine(files, parse_devices("cpu:2"), described).launch_us, 7);
  described.links = "/cache/none.json";
  EXPECT_THROW(find_machine(files, parse_devices("cpu:2"), described), InvalidArgument);
  write(files, "/cache/links.json", "{}");
  described.links = "/cache/links.json";
  try {
    find_machine(files, parse_devices("cpu:2"), described);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("--links=/cache/links.json: "));
  }
}

TEST(CacheDirectory, FollowsXdgAndHome) {
  const auto with = [](const char* xdg, const char* home) {
    const char* const names[] = {"XDG_CACHE_HOME", "HOME"};
    const char* const values[] = {xdg, home};
    std::optional<std::string> before[2];
    for (std::size_t i = 0; i < 2; ++i) {
      if (const char* was = std::getenv(names[i])) before[i] = was;
      values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]);
    }
    const std::string directory = cache_directory();
    for (std::size_t i = 0; i < 2; ++i)
      before[i] ? setenv(names[i], before[i]->c_str(), 1) : unsetenv(names[i]);
    return directory;
  };
  EXPECT_EQ(with("/tmp/cache", "/root"), "/tmp/cache/belfry");
  EXPECT_EQ(with("relative", "/root"), "/root/.cache/belfry");
  EXPECT_EQ(with(nullptr, "/root"), "/root/.cache/belfry");
  EXPECT_EQ(with("", nullptr), "");
}

}  // namespace measure_machine_test
}  // namespace belfry
