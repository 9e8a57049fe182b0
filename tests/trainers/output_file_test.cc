#include "belfry/trainers/output_file.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "belfry/framework/error.h"

namespace belfry {
namespace {

using testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const char* name) const { return folder_ / name; }
  static std::string text(const std::string& file) {
    const std::vector<std::byte> bytes = local_file_system().read(file);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::filesystem::path folder_;
};

TEST_F(OutputFileTest, WritesTheWholeText) {
  OutputFile file(local_file_system(), "--json", path("r.json"));
  EXPECT_FALSE(local_file_system().exists(path("r.json")));
  file.write("{}\n");
  EXPECT_EQ(text(path("r.json")), "{}\n");
  EXPECT_EQ(local_file_system().list(folder_), std::vector<std::string>{"r.json"});
}

TEST_F(OutputFileTest, LeavesAnExistingFileAloneUntilThereAreResults) {
  write_text_file(local_file_system(), path("r.json"), "old");
  OutputFile file(local_file_system(), "--json", path("r.json"));
  EXPECT_EQ(text(path("r.json")), "old");
  file.write("new");
  EXPECT_EQ(text(path("r.json")), "new");
}

TEST_F(OutputFileTest, KeepsLinksAndReplacesWhatTheyLeadTo) {
  write_text_file(local_file_system(), path("real.json"), "old");
  std::filesystem::create_symlink("real.json", path("link.json"));
  OutputFile(local_file_system(), "--json", path("link.json")).write("new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.json")));
  EXPECT_EQ(text(path("real.json")), "new");
}

TEST_F(OutputFileTest, MakesWhatADanglingLinkLeadsTo) {
  std::filesystem::create_symlink("new.json", path("link.json"));
  OutputFile(local_file_system(), "--json", path("link.json")).write("text");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.json")));
  EXPECT_EQ(text(path("new.json")), "text");
}

TEST_F(OutputFileTest, HoldsAPipeOpenFromTheStart) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::string got;
  std::jthread reader([&] { got = text(path("pipe")); });
  OutputFile(local_file_system(), "--json", path("pipe")).write("through the pipe");
  reader.join();
  EXPECT_EQ(got, "through the pipe");
}

TEST_F(OutputFileTest, RefusesWhatCannotBeWritten) {
  try {
    OutputFile(local_file_system(), "--json", path("missing/r.json"));
    ADD_FAILURE() << "a folder that does not exist was accepted";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--json=" + path("missing/r.json")));
  }
  EXPECT_THROW(OutputFile(local_file_system(), "--json", folder_), IoError);
}

TEST_F(OutputFileTest, WritesToDevicesAsTheyAre) {
  OutputFile file(local_file_system(), "--json", "/dev/null");
  file.write("{}");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_TRUE(OutputFile(local_file_system(), "--json", "/dev/stdout").is_stdout());
}

}  // namespace
}  // namespace belfry
