#include "belfry/trainers/machine/planned_memory.h"

#include <gtest/gtest.h>

namespace belfry {
namespace planned_memory_test {

TEST(PlannedMemory, LeavesOutDevicesThatAreOnlyDeclared) {
  const DeviceUse use[] = {
      {.device = DeviceSpec::local("CPU", 0), .peak_bytes = 5},
      {.device = DeviceSpec::local("CPU", 1), .peak_bytes = 7},
      {.device = DeviceSpec::local("GPU", 0), .peak_bytes = 100, .declared = true}};
  EXPECT_EQ(host_bytes(use), 12);
}

TEST(PlannedMemory, CountsWhatIsHeldBesidePlans) {
  MemoryReport report;
  for (const char* const type : {"CPU", "GPU"}) {
    KindBytes bytes;
    bytes[MemoryKind::kActivation] = 100;
    bytes[MemoryKind::kFeed] = 5;
    report.devices.push_back({DeviceSpec::local(type, 0), bytes, 5});
  }
  const HeldMemory held{.batches = 3, .data = 1000, .saved = 20000};
  EXPECT_EQ(planned_bytes(report.devices[0], held)[MemoryKind::kFeed], 15);
  EXPECT_EQ(planned_bytes(report.devices[0], held).total(), 115);
  EXPECT_EQ(planned_bytes(report, held), 2 * 115 + 21000);
  EXPECT_EQ(host_bytes(report, held), 115 + 21000) << "a GPU has memory of its own";
}

TEST(PlannedMemory, IsRefusedWithBothSizes) {
  EXPECT_EQ(memory_refusal("ring", 2048, 2048, "use less"), "");
  EXPECT_EQ(memory_refusal("ring", 3072, 2048, "use less"),
            "ring needs 3.00 KiB of memory, but this machine has 2.00 KiB; use less");
}

}  // namespace planned_memory_test
}  // namespace belfry
