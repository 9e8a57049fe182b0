#include "belfry/framework/base/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

TEST(ByteText, ChoosesTheUnit) {
  EXPECT_EQ(byte_text(0), "0 bytes");
  EXPECT_EQ(byte_text(1023), "1023 bytes");
  EXPECT_EQ(byte_text(1536), "1.50 KiB");
  EXPECT_EQ(byte_text(std::int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(byte_text(std::int64_t{1} << 60), "1048576.00 TiB");
}

}  // namespace host_memory_test
}  // namespace belfry
