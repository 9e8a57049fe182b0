#include "belfry/framework/base/host_memory.h"

#include <ctime>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"

namespace belfry {
namespace host_memory_test {

std::int64_t with_limit(const std::string& path, const std::string& text) {
  MemoryFileSystem files("/sys");
  files.create_directory(path.substr(0, path.rfind('/')));
  write_text_file(files, path, text);
  return host_memory(files);
}

TEST(HostMemory, IsThatOfTheMachineWithoutControlGroups) {
  MemoryFileSystem files("/sys");
  EXPECT_EQ(host_memory(files), std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

TEST(HostMemory, IsWhatAControlGroupLeaves) {
  EXPECT_EQ(with_limit("/sys/fs/cgroup/memory.max", "1048576\n"), 1048576);
  EXPECT_EQ(with_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"), 4096);
}

TEST(HostMemory, IgnoresLimitsThatAreNone) {
  MemoryFileSystem none("/sys");
  const std::int64_t machine = host_memory(none);
  for (const char* text : {"max\n", "", "9223372036854771712\n", "99999999999999999999\n", "-1\n"})
    EXPECT_EQ(with_limit("/sys/fs/cgroup/memory.max", text), machine) << text;
}

TEST(ResidentBytes, AreWhatTheSystemSays) {
  MemoryFileSystem files("/proc/self");
  EXPECT_EQ(resident_bytes(files), 0) << "where it says nothing";
  write_text_file(files, "/proc/self/status",
                  "Name:\tVmRSS: 1 kB\nVmHWM:\t    2048 kB\nVmRSS:\t      12 kB\n");
  EXPECT_EQ(resident_bytes(files), 12 << 10);
  EXPECT_EQ(peak_resident_bytes(files), 2 << 20);
}

TEST(ResidentBytes, OfThisProcessGrowWithWhatItTouches) {
  const std::int64_t before = resident_bytes();
  ASSERT_GT(before, 0);
  const std::vector<char> touched(64 << 20, 1);
  EXPECT_GE(resident_bytes(), before + (60 << 20));
  EXPECT_GE(peak_resident_bytes(), resident_bytes());
}

TEST(SecondsSinceStart, CountFromTheStartOfTheProcess) {
  MemoryFileSystem files("/proc/self");
  EXPECT_EQ(seconds_since_start(files), 0) << "where the system says nothing";
  timespec now{};
  ASSERT_EQ(clock_gettime(CLOCK_BOOTTIME, &now), 0);
  const std::int64_t ticks = (now.tv_sec - 3) * sysconf(_SC_CLK_TCK);
  write_text_file(files, "/proc/self/stat",
                  cat("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 ", ticks, " 9\n"));
  EXPECT_NEAR(seconds_since_start(files), 3.5, 1);
  const double here = seconds_since_start();
  EXPECT_GT(here, 0);
  EXPECT_GE(seconds_since_start(), here);
}

TEST(ByteText, ChoosesTheUnit) {
  EXPECT_EQ(byte_text(0), "0 bytes");
  EXPECT_EQ(byte_text(1023), "1023 bytes");
  EXPECT_EQ(byte_text(1536), "1.50 KiB");
  EXPECT_EQ(byte_text(std::int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(byte_text(std::int64_t{1} << 60), "1048576.00 TiB");
}

}  // namespace host_memory_test
}  // namespace belfry
