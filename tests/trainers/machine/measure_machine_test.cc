#include "belfry/trainers/machine/measure_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/allreduce/prediction/choice.h"
#include "belfry/tests/support/stand_in_gpus.h"
#include "belfry/tests/trainers/data/idx_files.h"
#include "belfry/trainers/flags/device_flag.h"

namespace belfry {
namespace measure_machine_test {

using test::message_of;
using testing::HasSubstr;

TEST(MeasureMachine, TimesWhatItCan) {
  const MeasuredDevices here{parse_devices("cpu:2"), 2};
  const MachineDescription machine = measure_machine(here, 1 << 20);  // more is slow in sanitizers
  EXPECT_EQ(machine.devices, here.devices);
  EXPECT_EQ(machine.workers, 2);
  EXPECT_GT(machine.run_us, 0);
  EXPECT_EQ(machine.bandwidth.size(), 6u);  // from 32 KiB to 1 MiB
  for (const Bandwidth& point : machine.bandwidth) {
    EXPECT_GT(point.one_gbps, 0);
    EXPECT_GT(point.all_gbps, 0);
  }
  EXPECT_TRUE(machine.links.empty());
  EXPECT_EQ(parse_machine(to_json(machine)), machine);
}

TEST(MeasureMachine, TakesLogicalGpusOfOneForOneMemory) {
  const test::StandInGpus gpus(1);
  const test::UseGpus use(gpus);
  const MeasuredDevices here{parse_devices("gpu:2"), 2, 2};
  const MachineDescription machine = measure_machine(here, 256 << 10);
  EXPECT_EQ(machine.devices, here.devices);
  EXPECT_EQ(machine.workers, 1);
  EXPECT_TRUE(machine.links.empty());
  EXPECT_EQ(machine.bandwidth.size(), 4u);

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

TEST(MeasureMachine, RefusesWhatIsNotHereAndMixtures) {
  const test::StandInGpus gpus(2);
  const test::UseGpus use(gpus);
  const auto why_not = [](const std::string& devices, int logical) {
    return message_of<InvalidArgument>([&] {
      measure_machine({parse_devices(devices), 2, logical}, 32 << 10);
    });
  };
  EXPECT_THAT(why_not("gpu:3", 1), HasSubstr("GPU:2 is declared, not here to be measured"));
  EXPECT_THAT(why_not("gpu:4", 2), HasSubstr("logical GPUs of 2 physical ones"));
  EXPECT_THAT(why_not("/cpu:0,/gpu:0", 1), HasSubstr("are of two kinds"));
}

}  // namespace measure_machine_test
}  // namespace belfry
