#include "belfry/framework/device/cpu_quota.h"

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/support/programs.h"

namespace belfry {
namespace cpu_quota_test {

// The disk, with another root.
class Rooted final : public FileSystem {
 public:
  explicit Rooted(std::string root) : root_(std::move(root)) {}
  ~Rooted() override { remove_tree(disk_, root_); }

  void put(const std::string& path, const std::string& text) {
    disk_.create_directory((root_ + path).substr(0, (root_ + path).rfind('/')));
    const auto file = disk_.create(root_ + path);
    file->append(std::as_bytes(std::span(text)));
    file->close();
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    return disk_.open(root_ + path);
  }

  std::unique_ptr<WritableFile> create(const std::string& path,
                                       const std::string& replaced) override {
    return disk_.create(path, replaced);
  }
  std::unique_ptr<WritableFile> extend(const std::string& path, std::uint64_t size) override {
    return disk_.extend(path, size);
  }
  std::unique_ptr<WritableFile> open_stream(const std::string& path) override {
    return disk_.open_stream(path);
  }
  int descriptor(const std::string& path) override { return disk_.descriptor(path); }
  bool exists(const std::string& path) override { return disk_.exists(path); }
  FileKind kind(const std::string& path) override { return disk_.kind(path); }
  FileKind target_kind(const std::string& path) override { return disk_.target_kind(path); }
  std::string resolve(const std::string& path) override { return disk_.resolve(path); }
  std::vector<std::string> list(const std::string& path) override { return disk_.list(path); }
  void create_directory(const std::string& path) override { disk_.create_directory(path); }
  void create_link(const std::string& path, const std::string& to) override {
    disk_.create_link(path, to);
  }
  void rename(const std::string& from, const std::string& to) override { disk_.rename(from, to); }
  void remove(const std::string& path) override { disk_.remove(path); }
  void sync_directory(const std::string& path) override { disk_.sync_directory(path); }
  std::unique_ptr<FileLock> lock(const std::string& path) override { return disk_.lock(path); }

 private:
  FileSystem& disk_ = local_file_system();
  const std::string root_;
};

TEST(CpuQuota, OfVersion2IsTheLeastOfTheGroupAndThoseAroundIt) {
  Rooted files(temporary_path(".quota"));
  EXPECT_EQ(cpu_quota(files), std::nullopt);
  files.put("/proc/self/cgroup", "0::/job/step\n");
  files.put("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(files), std::nullopt);
  files.put("/sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(files), 2.5);
  files.put("/sys/fs/cgroup/job/step/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(files), 1.5);
}

// A container sees the path of the host, but its own group at the mount.
TEST(CpuQuota, OfAContainerIsThatOfTheMount) {
  Rooted files(temporary_path(".quota"));
  files.put("/proc/self/cgroup", "0::/docker/123\n");
  files.put("/sys/fs/cgroup/cpu.max", "400000 100000");
  EXPECT_EQ(cpu_quota(files), 4);
}

TEST(CpuQuota, OfVersion1IsReadToo) {
  Rooted files(temporary_path(".quota"));
  files.put("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n");
  files.put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  files.put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(files), std::nullopt);
  files.put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cpu_quota(files), 3);
}

}  // namespace cpu_quota_test
}  // namespace belfry
