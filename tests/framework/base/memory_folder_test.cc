#include "belfry/framework/base/memory_folder.h"

#include <filesystem>
#include <string_view>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace memory_folder_test {

class FilesInMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (memory_file_system().empty()) GTEST_SKIP() << "this machine has no files in memory";
    folder_ = cat(memory_file_system(), "/belfry-test-", ::getpid());
    make_private_folder(folder_);
  }
  ~FilesInMemory() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string write(const char* name, std::string_view text) const {
    const std::string path = cat(folder_, "/", name);
    write_text_file(local_file_system(), path, std::string(text));
    return path;
  }

  std::string folder_;
};

TEST_F(FilesInMemory, StayWhileTheyAreRead) {
  const std::string path = write("a", "bytes");
  const FileInMemory file(path);
  local_file_system().remove(path);
  write("a", "other");
  const std::span<const std::byte> bytes = file.bytes();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "bytes");
}

TEST_F(FilesInMemory, MayBeEmptyButNotMissing) {
  EXPECT_TRUE(FileInMemory(write("empty", "")).bytes().empty());
  EXPECT_THROW(FileInMemory(folder_ + "/none"), NotFoundError);
  EXPECT_THROW(FileInMemory{folder_}, IoError);
}

TEST_F(FilesInMemory, ArePrivateOnlyInAFolderThatNobodyElseCanRead) {
  const std::string path = write("a", "bytes");
  EXPECT_TRUE(is_private_in_memory(path));
  EXPECT_TRUE(is_private_in_memory(folder_ + "/folder/none"));
  ::chmod(folder_.c_str(), 0755);
  EXPECT_FALSE(is_private_in_memory(path));
  EXPECT_FALSE(is_private_in_memory(memory_file_system() + "/a"));
  EXPECT_FALSE(is_private_in_memory("/etc/passwd"));
}

}  // namespace memory_folder_test
}  // namespace belfry
