#include "belfry/trainers/core/run_identity.h"

#include <gtest/gtest.h>

#include "belfry/tests/framework/base/memory_file_system.h"

namespace belfry {
namespace run_identity_test {

constexpr std::size_t kMiB = std::size_t{1} << 20;

void write(MemoryFileSystem& disk, std::span<const std::byte> bytes) {
  disk.create("/disk/data")->append(bytes);
}

TEST(ChecksumOfFile, ReadsTheEndsOfALargeFileAlone) {
  MemoryFileSystem disk("/disk");
  std::vector<std::byte> bytes(65 * kMiB);
  const auto sum = [&] {
    write(disk, bytes);
    disk.fail_at(4);  // opened, read, sought, read
    const std::string result = checksum_of_file(disk, "/disk/data");
    EXPECT_TRUE(disk.waits());
    disk = disk.again();
    return result;
  };
  const std::string before = sum();
  bytes[kMiB] = bytes[64 * kMiB - 1] = std::byte{1};
  EXPECT_EQ(sum(), before);
  for (const std::size_t at : {std::size_t{0}, kMiB - 1, 64 * kMiB, bytes.size() - 1}) {
    bytes[at] = std::byte{1};
    EXPECT_NE(sum(), before) << at;
    bytes[at] = std::byte{0};
  }
}

TEST(ChecksumOfFile, ReadsAllOfAFileUpTo64MiB) {
  MemoryFileSystem disk("/disk");
  std::vector<std::byte> bytes(3 * kMiB + 5);
  write(disk, bytes);
  const std::string before = checksum_of_file(disk, "/disk/data");
  bytes[kMiB + kMiB / 2] = std::byte{1};
  write(disk, bytes);
  EXPECT_NE(checksum_of_file(disk, "/disk/data"), before);
}

}  // namespace run_identity_test
}  // namespace belfry
