#include "belfry/allreduce/simulation/host_machine.h"

#include <gtest/gtest.h>

namespace belfry {
namespace host_machine_test {

TEST(HostMachine, SharesTheLinkOfADeviceAmongPairs) {
  const MachineDescription machine = host_machine({.memory_rate = 900e9,
                                                   .devices_per_host = 4,
                                                   .link = {3e-6, LinkRate(150e9)},
                                                   .feed_rate = 16e9,
                                                   .devices_per_feed = 2});
  ASSERT_EQ(machine.devices.size(), 5u);
  EXPECT_EQ(machine.devices[3], DeviceSpec::local("GPU", 3));
  EXPECT_EQ(machine.devices[4], DeviceSpec::local("CPU", 0));
  EXPECT_DOUBLE_EQ(machine.links[0][3].gbps, 50);
  EXPECT_DOUBLE_EQ(machine.links[0][3].latency_us, 3);
  EXPECT_EQ(machine.links[0][3].bus, "");
  EXPECT_DOUBLE_EQ(machine.links[1][4].gbps, 16);
  EXPECT_EQ(machine.links[1][4], machine.links[4][0]);
  EXPECT_NE(machine.links[1][4].bus, machine.links[2][4].bus);
  EXPECT_DOUBLE_EQ(machine.bandwidth_at(1 << 20).one_gbps, 900);
  EXPECT_EQ(machine.launch_us, 5);
  // What it describes can be written and read as a file of links.
  EXPECT_EQ(parse_machine(to_json(machine)).devices, machine.devices);
}

TEST(HostMachine, HasSlowerLinksBetweenIslands) {
  const MachineDescription machine = host_machine({.devices_per_host = 4,
                                                   .link = {3e-6, LinkRate(150e9)},
                                                   .devices_per_island = 2,
                                                   .bridge_rate = LinkRate(20e9)});
  EXPECT_DOUBLE_EQ(machine.links[2][3].gbps, 50);
  EXPECT_DOUBLE_EQ(machine.links[1][2].gbps, 5) << "four pairs share the bridge";
}

}  // namespace host_machine_test
}  // namespace belfry
