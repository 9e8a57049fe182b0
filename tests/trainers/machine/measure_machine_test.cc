#include "belfry/trainers/machine/measure_machine.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/prediction/choice.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace measure_machine_test {

using test::message_of;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kCached = "/cache/machine-2-devices-2-threads.json";

MachineDescription cheap() {
  return {.devices = parse_devices("cpu:2"), .workers = 2, .run_us = 1, .bandwidth = {{1, 10, 20}}};
}

MachineDescription measured(const MeasuredDevices& here) {
  return {
      .devices = here.devices, .workers = here.threads, .run_us = 2, .bandwidth = {{1, 10, 20}}};
}

MachineOptions options() { return {.cache = "/cache", .measure = measured}; }

const MeasuredDevices kTwo{parse_devices("cpu:2"), 2};

void write(FileSystem& files, const std::string& path, const std::string& text) {
  files.create_directory("/cache");
  write_text_file(files, path, text);
}

TEST(MeasureMachine, TimesWhatItCanAndKeepsItForTheNextTime) {
  MemoryFileSystem files("/cache");
  const auto measure = [](const MeasuredDevices& here) {
    return measure_machine(here, 1 << 20);  // a larger size takes long under sanitizers
  };
  const MachineDescription machine =
      find_machine(files, kTwo, {.cache = "/cache", .measure = measure});
  EXPECT_EQ(machine.devices, kTwo.devices);
  EXPECT_EQ(machine.workers, 2);
  EXPECT_GT(machine.run_us, 0);
  EXPECT_EQ(machine.bandwidth.size(), 6u);  // from 32 KiB to 1 MiB
  for (const Bandwidth& point : machine.bandwidth) {
    EXPECT_GT(point.one_gbps, 0);
    EXPECT_GT(point.all_gbps, 0);
  }
  EXPECT_TRUE(machine.links.empty());
  ASSERT_TRUE(files.exists(kCached));
  EXPECT_EQ(find_machine(files, kTwo, options()), machine);
}

TEST(MeasureMachine, TakesLogicalGpusOfOneForOneMemory) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  MemoryFileSystem files("/cache");
  const MeasuredDevices here{parse_devices("gpu:2"), 2, 2};
  const auto measure = [](const MeasuredDevices& all) { return measure_machine(all, 256 << 10); };
  const MachineDescription machine =
      find_machine(files, here, {.cache = "/cache", .measure = measure});
  EXPECT_EQ(machine.devices, here.devices);
  EXPECT_EQ(machine.workers, 1);
  EXPECT_TRUE(machine.links.empty());
  EXPECT_EQ(machine.bandwidth.size(), 4u);
  EXPECT_TRUE(files.exists("/cache/machine-2-logical-gpus-Fake.json"));

  const StrategyChoice choice = choose_strategy({"collective", "naive", "naive_cpu"},
                                                {{{1000}, DType::kF32}}, here.devices, machine);
  for (const Prediction& prediction : choice.predictions) {
    const bool on_host = prediction.strategy == "naive_cpu";
    EXPECT_EQ(prediction.refusal.empty(), !on_host) << prediction.strategy;
    if (on_host) {
      EXPECT_THAT(prediction.refusal, HasSubstr("no link between GPU:"));
    }
  }
}

TEST(MeasureMachine, MeasuresTheLinksOfGpus) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const MachineDescription machine = measure_machine({parse_devices("gpu:2"), 2}, 256 << 10);
  EXPECT_EQ(machine.workers, 0);
  ASSERT_EQ(machine.links.size(), 2u);
  EXPECT_GT(machine.links[0][1].gbps, 0);
  EXPECT_GT(machine.links[0][1].latency_us, 0);
  EXPECT_EQ(machine.links[0][1], machine.links[1][0]);
  EXPECT_EQ(parse_machine(to_json(machine)), machine);
}

TEST(RequireMeasurable, RefusesWhatIsNotHereAndMixtures) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const auto why_not = [](const std::string& devices, int logical) {
    return message_of<InvalidArgument>([&] {
      require_measurable({parse_devices(devices), 2, logical});
    });
  };
  EXPECT_NO_THROW(require_measurable({parse_devices("gpu:2"), 2}));
  EXPECT_NO_THROW(require_measurable({parse_devices("gpu:4"), 2, 4}));
  EXPECT_THAT(why_not("gpu:3", 1), HasSubstr("GPU:2 is declared, not here to be measured"));
  EXPECT_THAT(why_not("gpu:4", 2), HasSubstr("logical GPUs of 2 physical ones"));
  EXPECT_THAT(why_not("/cpu:0,/gpu:0", 1), HasSubstr("are of two kinds"));
}

TEST(FindMachine, TakesWhatWasKept) {
  MemoryFileSystem files("/cache");
  write(files, kCached, to_json(cheap()).str());
  EXPECT_EQ(find_machine(files, kTwo, options()), cheap());
}

TEST(FindMachine, MeasuresAgainWhereItIsAskedToOrTheFileIsNoUse) {
  for (const char* kept : {"{", R"({"devices": ["cpu:0", "cpu:7"]})"}) {
    MemoryFileSystem files("/cache");
    write(files, kCached, kept);
    EXPECT_EQ(find_machine(files, kTwo, options()).run_us, 2) << kept;
  }
  MemoryFileSystem files("/cache");
  write(files, kCached, to_json(cheap()).str());
  MachineOptions again = options();
  again.remeasure = true;
  EXPECT_EQ(find_machine(files, kTwo, again).run_us, 2);
  EXPECT_EQ(find_machine(files, kTwo, options()).run_us, 2);
}

TEST(FindMachine, ReadsAFileOfLinksInstead) {
  MemoryFileSystem files("/cache");
  write(files, "/cache/links.json", R"({"devices": ["gpu:0"], "launch_us": 7})");
  MachineOptions described = options();
  described.links = "/cache/links.json";
  EXPECT_EQ(find_machine(files, kTwo, described).launch_us, 7);
  described.links = "/cache/none.json";
  EXPECT_THROW(find_machine(files, kTwo, described), InvalidArgument);
  write(files, "/cache/links.json", "{}");
  described.links = "/cache/links.json";
  try {
    find_machine(files, kTwo, described);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), StartsWith("links=/cache/links.json: "));
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

TEST(MeasureMachine, ReadsAHostOfAClusterAsAMachine) {
  MemoryFileSystem files("/cache");
  write(files, "/cache/host.json",
        R"({"name": "two", "sources": {"a": "a page"}, "device": {},
            "host": {"devices": {"is": 2, "from": "a"}, "gbps": {"is": 20, "from": "a"}}})");
  MachineOptions described = options();
  described.links = "/cache/host.json";
  const MachineDescription machine = find_machine(files, kTwo, described);
  ASSERT_EQ(machine.devices.size(), 3u);
  EXPECT_EQ(machine.links[0][1].gbps, 20);
}

}  // namespace measure_machine_test
}  // namespace belfry
