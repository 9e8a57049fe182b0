#include "belfry/framework/base/host_cores.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"

namespace belfry {
namespace host_cores_test {

int with_limit(const std::string& text) {
  MemoryFileSystem files("/sys/fs/cgroup");
  write_text_file(files, "/sys/fs/cgroup/cpu.max", text);
  return core_limit(files);
}

TEST(CoreLimit, IsWhatAControlGroupLeavesRoundedUp) {
  EXPECT_EQ(with_limit("200000 100000\n"), 2);
  EXPECT_EQ(with_limit("150000 100000\n"), 2);
  EXPECT_EQ(with_limit("10000 100000\n"), 1);
  EXPECT_EQ(with_limit("50000 50000"), 1);
}

TEST(CoreLimit, IsNoneWhereThereIsNoLimit) {
  MemoryFileSystem none("/sys");
  EXPECT_EQ(core_limit(none), 0);
  for (const char* text : {"max 100000\n", "", "100000", "0 100000\n", "100000 0\n", "-1 100000\n",
                           "9223372036854775807 1\n", "99999999999999999999 1\n"})
    EXPECT_EQ(with_limit(text), 0) << text;
}

TEST(CoreLimit, IsReadFromVersionOneToo) {
  const auto quota = [](const char* text) {
    MemoryFileSystem files("/sys/fs/cgroup/cpu");
    write_text_file(files, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text);
    write_text_file(files, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    return core_limit(files);
  };
  EXPECT_EQ(quota("300000\n"), 3);
  EXPECT_EQ(quota("-1\n"), 0);
}

}  // namespace host_cores_test
}  // namespace belfry
