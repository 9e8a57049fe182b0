#include "belfry/framework/file_system.h"

#include <cstdlib>
#include <filesystem>

#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileSystemTest : public ::testing::Test {
 protected:
  FileSystemTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "belfry-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~FileSystemTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string text(const std::string& name) {
    const auto bytes = files_.read(path(name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  FileSystem& files_ = local_file_system();
  std::string directory_;
};

TEST_F(FileSystemTest, ReadsBackWhatWasWritten) {
  const auto file = files_.create(path("a"));
  const std::string first = "hello ", second("wor\0ld", 6);
  file->append(std::as_bytes(std::span(first)));
  file->append({});
  file->append(std::as_bytes(std::span(second)));
  file->sync();
  file->close();
  EXPECT_EQ(text("a"), first + second);
}

TEST_F(FileSystemTest, ReadsFilesOfAnyLength) {
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1}) {
    write_text_file(files_, path("a"), std::string(length, 'x'));
    EXPECT_EQ(text("a").size(), length);
  }
}

TEST_F(FileSystemTest, CreatingTruncates) {
  write_text_file(files_, path("a"), "long text");
  files_.create(path("a"))->close();
  EXPECT_EQ(text("a"), "");
}

TEST_F(FileSystemTest, AWrittenTextReplacesTheOldOneAndLeavesNothingElse) {
  write_text_file(files_, path("a"), "old");
  write_text_file(files_, path("a"), "new");
  EXPECT_EQ(text("a"), "new");
  EXPECT_THAT(files_.list(directory_), ElementsAre("a"));
}

TEST_F(FileSystemTest, ListsNamesInOrder) {
  for (const char* name : {"b", "a", "c"}) write_text_file(files_, path(name), "");
  files_.create_directory(path("d/e"));
  EXPECT_THAT(files_.list(directory_), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(files_.list(path("d/e")), IsEmpty());
  files_.create_directory(path("d/e"));  // it may exist
}

TEST_F(FileSystemTest, RenamesRemovesAndKnowsWhatExists) {
  write_text_file(files_, path("a"), "x");
  files_.rename(path("a"), path("b"));
  EXPECT_FALSE(files_.exists(path("a")));
  EXPECT_TRUE(files_.exists(path("b")));
  files_.sync_directory(directory_);
  files_.remove(path("b"));
  EXPECT_FALSE(files_.exists(path("b")));
}

TEST_F(FileSystemTest, TellsFilesDirectoriesAndLinksApart) {
  write_text_file(files_, path("file"), "x");
  std::filesystem::create_symlink(directory_, path("link"));
  EXPECT_EQ(files_.kind(path("none")), FileKind::kNone);
  EXPECT_EQ(files_.kind(path("file")), FileKind::kFile);
  EXPECT_EQ(files_.kind(directory_), FileKind::kDirectory);
  EXPECT_EQ(files_.kind(path("link")), FileKind::kOther);
}

TEST_F(FileSystemTest, ResolvesLinksAndDotsAsFarAsThePathExists) {
  const std::string real = std::filesystem::canonical(directory_).string();
  std::filesystem::create_symlink(directory_, path("link"));
  EXPECT_EQ(files_.resolve(path("link/./a/../b")), real + "/b");
  EXPECT_EQ(files_.resolve("relative"), std::filesystem::current_path().string() + "/relative");
}

TEST_F(FileSystemTest, RemovesDirectoriesWithTheirContentOnlyWhenAskedTo) {
  files_.create_directory(path("d/e"));
  write_text_file(files_, path("d/e/a"), "x");
  write_text_file(files_, path("kept"), "x");
  std::filesystem::create_symlink(path("kept"), path("d/link"));
  EXPECT_THAT(message_of<IoError>([&] { files_.remove(path("d")); }), HasSubstr(path("d")));
  remove_tree(files_, path("d"));
  remove_tree(files_, path("none"));
  EXPECT_THAT(files_.list(directory_), ElementsAre("kept"));
}

TEST_F(FileSystemTest, WhatIsMissingIsNotFoundByItsPath) {
  EXPECT_THAT(message_of<NotFound>([&] { files_.read(path("none")); }), HasSubstr(path("none")));
}

TEST_F(FileSystemTest, ErrorsNameTheFileAndTheReason) {
  const auto failure = [](const auto& f) { return message_of<IoError>(f); };
  EXPECT_THAT(failure([&] { files_.create(path("no/such/folder")); }),
              HasSubstr(path("no/such/folder") + ": cannot create: No such file or directory"));
  EXPECT_THAT(failure([&] { files_.read(directory_); }), HasSubstr("Is a directory"));
  EXPECT_THAT(failure([&] { files_.list(path("none")); }), HasSubstr(path("none")));
  EXPECT_THAT(failure([&] { files_.rename(path("none"), path("b")); }), HasSubstr(path("none")));
  EXPECT_THAT(failure([&] { files_.sync_directory(path("none")); }), HasSubstr(path("none")));
  write_text_file(files_, path("a"), "x");
  EXPECT_THAT(failure([&] { files_.create_directory(path("a/b")); }), HasSubstr(path("a/b")));
  const auto file = files_.create(path("b"));
  file->close();
  EXPECT_THAT(failure([&] { file->sync(); }), HasSubstr(path("b")));
}

TEST_F(FileSystemTest, AFullDiskIsReported) {
  if (!files_.exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto file = files_.create("/dev/full");
  const std::string data(1000, 'x');
  EXPECT_THAT(message_of<IoError>([&] { file->append(std::as_bytes(std::span(data))); }),
              HasSubstr("/dev/full: cannot write: No space left on device"));
}

}  // namespace
}  // namespace belfry
