#include "belfry/framework/base/file_system.h"

#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace file_system_test {

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

TEST_F(FileSystemTest, WritingATextTouchesNoOtherFile) {
  files_.create(path("a.tmp"))->close();
  write_text_file(files_, path("a"), "new");
  files_.create_directory(path("d/e"));
  EXPECT_THROW(write_text_file(files_, path("d"), "text"), IoError);
  EXPECT_THROW(write_text_file(files_, path("no/such/folder"), "text"), IoError);
  EXPECT_THAT(files_.list(directory_), ElementsAre("a", "a.tmp", "d"));
  EXPECT_THAT(files_.list(path("d")), ElementsAre("e"));
}

TEST(WriteText, ThatFailsAtAnyCallLeavesTheOldTextAlone) {
  int failed = 0;
  for (bool waits = false; !waits; ++failed) {
    MemoryFileSystem disk("/disk");
    write_text_file(disk, "/disk/a", "old");
    disk.fail_at(failed);
    if (failed < 7)
      EXPECT_THROW(write_text_file(disk, "/disk/a", "longer"), IoError);
    else
      write_text_file(disk, "/disk/a", "longer");
    waits = disk.waits();
    disk = disk.again();
    EXPECT_THAT(disk.list("/disk"), ElementsAre("a"));
    EXPECT_EQ(disk.read("/disk/a").size(), failed < 7 ? 3u : 6u);
  }
  // Failing calls: is it a stream, resolve, create, append, sync, close, rename. When the folder is
  // synced, the new text is there. The last try succeeds.
  EXPECT_EQ(failed, 9);
}

// After a rename the folder may still have the old entry on the disk.
TEST(WriteText, OutlivesTheMachine) {
  MemoryFileSystem disk("/disk");
  write_text_file(disk, "/disk/a", "old");
  write_text_file(disk, "/disk/a", "longer");
  point_link(disk, "/disk/link", "a");
  point_link(disk, "/disk/link", "other");
  MemoryFileSystem found = disk.after_crash(0, /*all_data=*/false);
  EXPECT_THAT(found.list("/disk"), ElementsAre("a", "link"));
  EXPECT_EQ(found.read("/disk/a").size(), 6u);
  EXPECT_EQ(found.read("/disk/link").size(), 5u);
}

TEST(TemporaryNames, AreUniqueAndKnownByTheirForm) {
  const std::string first = temporary_name("/d/run"), second = temporary_name("/d/run");
  EXPECT_NE(first, second);
  EXPECT_TRUE(is_temporary_name(first, "/d/run"));
  EXPECT_TRUE(is_temporary_name("run.tmp-12-345", "run"));
  for (const char* name :
       {"run", "run.tmp", "run.tmp-", "run.tmp-1", "run.tmp-1-", "run.tmp--1", "run.tmp-1-2-3",
        "run.tmp-1-2x", "run.tmp-a-2", "run2.tmp-1-2", "run.tmp-+1-2", "xrun.tmp-1-2"})
    EXPECT_FALSE(is_temporary_name(name, "run")) << name;
}

// Tests that the disk and the file system of tests must both pass.
class EveryFileSystemTest : public FileSystemTest, public ::testing::WithParamInterface<bool> {
 protected:
  EveryFileSystemTest() : memory_(directory_) {}
  void make(const std::string& name) { disk_.create(path(name))->close(); }
  template <class F>
  void expect_refused(const F& f) {
    const std::vector<std::string> before = disk_.list(directory_);
    EXPECT_THAT(message_of<IoError>(f), HasSubstr(directory_));
    EXPECT_EQ(disk_.list(directory_), before);
  }

  MemoryFileSystem memory_;
  FileSystem& disk_ = GetParam() ? static_cast<FileSystem&>(memory_) : files_;
};

TEST_P(EveryFileSystemTest, CreatesAndReadsFilesOnly) {
  const std::byte bytes[3] = {};
  disk_.create(path("a"))->append(bytes);
  EXPECT_EQ(disk_.read(path("a")).size(), 3u);
  make("a");
  EXPECT_EQ(disk_.read(path("a")).size(), 0u);
  disk_.create_directory(path("d"));
  expect_refused([&] { disk_.create(path("d")); });
  expect_refused([&] { disk_.create(path("no/a")); });
  expect_refused([&] { disk_.create(path("a/b")); });
  expect_refused([&] { disk_.read(path("d")); });
  EXPECT_THROW(disk_.read(path("none")), NotFoundError);
}

TEST_P(EveryFileSystemTest, TellsKindsApart) {
  make("a");
  disk_.create_directory(path("d"));
  const std::pair<const char*, FileKind> kinds[] = {
      {"a", FileKind::kFile}, {"d", FileKind::kDirectory}, {"none", FileKind::kNone}};
  for (const auto& [name, kind] : kinds) {
    EXPECT_EQ(disk_.kind(path(name)), kind);
    EXPECT_EQ(disk_.target_kind(path(name)), kind);
    EXPECT_EQ(disk_.exists(path(name)), kind != FileKind::kNone);
  }
}

TEST_P(EveryFileSystemTest, CreatesDirectoriesWithTheirParentsOnce) {
  disk_.create_directory(path("d/e/f"));
  make("d/e/f/a");
  disk_.create_directory(path("d/e"));
  EXPECT_THAT(disk_.list(path("d/e")), ElementsAre("f"));
  EXPECT_THAT(disk_.list(path("d/e/f")), ElementsAre("a"));
  expect_refused([&] { disk_.create_directory(path("d/e/f/a")); });
  expect_refused([&] { disk_.create_directory(path("d/e/f/a/b")); });
}

TEST_P(EveryFileSystemTest, ListsAndSyncsDirectoriesOnly) {
  make("a");
  for (const char* name : {"a", "none"}) {
    expect_refused([&] { disk_.list(path(name)); });
    expect_refused([&] { disk_.sync_directory(path(name)); });
  }
}

TEST_P(EveryFileSystemTest, RenamesOverFilesAndEmptyDirectories) {
  const std::byte bytes[3] = {};
  disk_.create(path("b"))->append(bytes);
  make("a");
  disk_.rename(path("b"), path("a"));
  EXPECT_THAT(disk_.list(directory_), ElementsAre("a"));
  EXPECT_EQ(disk_.read(path("a")).size(), 3u);
  disk_.rename(path("a"), path("b"));
  EXPECT_EQ(disk_.read(path("b")).size(), 3u);
  for (const char* name : {"empty", "full/x"}) disk_.create_directory(path(name));
  expect_refused([&] { disk_.rename(path("empty"), path("full")); });
  expect_refused([&] { disk_.rename(path("b"), path("empty")); });
  expect_refused([&] { disk_.rename(path("empty"), path("b")); });
  expect_refused([&] { disk_.rename(path("none"), path("b")); });
  disk_.rename(path("full"), path("empty"));
  EXPECT_THAT(disk_.list(directory_), ElementsAre("b", "empty"));
  EXPECT_THAT(disk_.list(path("empty")), ElementsAre("x"));
}

TEST_P(EveryFileSystemTest, ExtendsAFileFromAPlaceOn) {
  const std::string log = path("log");
  const auto add = [&](std::uint64_t size, std::string_view text) {
    const auto file = disk_.extend(log, size);
    file->append(std::as_bytes(std::span(text)));
    file->close();
  };
  add(0, "one two");
  add(4, "three");
  const std::vector<std::byte> bytes = disk_.read(log);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
            "one three");
  EXPECT_THROW(disk_.extend(log, 10), IoError);
  EXPECT_THROW(disk_.extend(path("none"), 1), IoError);
  disk_.create_directory(path("folder"));
  EXPECT_THROW(disk_.extend(path("folder"), 0), IoError);
}

TEST_P(EveryFileSystemTest, ReadsOnFromAPlace) {
  const std::string text = "one two three";
  const auto written = disk_.create(path("text"));
  written->append(std::as_bytes(std::span(text)));
  written->close();
  const auto file = disk_.open(path("text"));
  const auto next = [&](std::size_t count) {
    std::string out(count, ' ');
    out.resize(file->read(std::as_writable_bytes(std::span(out))));
    return out;
  };
  EXPECT_EQ(next(3), "one");
  file->seek(8);
  EXPECT_EQ(next(9), "three");
  file->seek(4);
  EXPECT_EQ(next(3), "two");
  file->seek(100);
  EXPECT_EQ(next(1), "");
}

TEST_P(EveryFileSystemTest, PointsLinks) {
  const std::string latest = path("latest");
  point_link(disk_, latest, "one");
  point_link(disk_, latest, "two");
  EXPECT_THAT(disk_.list(directory_), ElementsAre("latest"));
  disk_.create_directory(path("folder/inner"));
  EXPECT_THROW(point_link(disk_, path("folder"), "one"), IoError);
  EXPECT_THAT(disk_.list(directory_), ElementsAre("folder", "latest"));
}

TEST_P(EveryFileSystemTest, RemovesFilesAndEmptyDirectories) {
  make("a");
  disk_.create_directory(path("d/e"));
  expect_refused([&] { disk_.remove(path("d")); });
  for (const char* name : {"a", "none", "d/e", "d"}) disk_.remove(path(name));
  EXPECT_THAT(disk_.list(directory_), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Both, EveryFileSystemTest, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "InMemory" : "OnDisk"; });

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

TEST_F(FileSystemTest, TellsWhatIsThereFromWhatItLeadsTo) {
  write_text_file(files_, path("file"), "x");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const auto expect = [&](const std::string& target, FileKind kind) {
    EXPECT_EQ(files_.kind(target), kind) << target;
    EXPECT_EQ(files_.target_kind(target), kind) << target;
    const std::string link = path("link"), links = path("links");
    std::filesystem::create_symlink(target, link);
    std::filesystem::create_symlink("link", links);
    EXPECT_EQ(files_.kind(links), FileKind::kOther) << target;
    EXPECT_EQ(files_.target_kind(links), kind) << target;
    EXPECT_EQ(files_.exists(links), kind != FileKind::kNone) << target;
    for (const std::string& name : {link, links}) files_.remove(name);  // not the target
  };
  expect(path("none"), FileKind::kNone);
  expect(path("no/such/name"), FileKind::kNone);
  expect(path("file/below"), FileKind::kNone);
  expect(path("file"), FileKind::kFile);
  expect(directory_, FileKind::kDirectory);
  expect(path("pipe"), FileKind::kOther);
  expect("/dev/null", FileKind::kOther);
  EXPECT_EQ(text("file"), "x");
}

TEST_F(FileSystemTest, KnowsWhenAFileWasWritten) {
  write_text_file(files_, path("a"), "x");
  const timespec times[2] = {{.tv_sec = 7, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path("a").c_str(), times, 0), 0);
  std::filesystem::create_symlink("a", path("link"));
  EXPECT_EQ(files_.modified(path("link")), 1000);
  EXPECT_EQ(files_.modified(path("none")), 0);
}

TEST_F(FileSystemTest, SaysThatALinkLeadsInACircle) {
  std::filesystem::create_symlink("b", path("a"));
  std::filesystem::create_symlink("a", path("b"));
  EXPECT_EQ(files_.kind(path("a")), FileKind::kOther);
  EXPECT_FALSE(files_.exists(path("a")));
  const std::string message = "/a: cannot look up: Too many levels of symbolic links";
  EXPECT_THAT(message_of<IoError>([&] { files_.target_kind(path("a")); }), HasSubstr(message));
  EXPECT_THAT(message_of<IoError>([&] { files_.resolve(path("a/c")); }),
              HasSubstr("/a/c: cannot resolve: Too many levels of symbolic links"));
}

TEST_F(FileSystemTest, ResolvesLinksAndDotsWhetherOrNotThePathExists) {
  const std::string real = std::filesystem::canonical(directory_).string();
  std::filesystem::create_symlink(directory_, path("link"));
  EXPECT_EQ(files_.resolve(path("link/./a/../b")), real + "/b");
  EXPECT_EQ(files_.resolve(path("link/no//such/../name/")), real + "/no/name");
  EXPECT_EQ(files_.resolve("relative"), std::filesystem::current_path().string() + "/relative");
  EXPECT_EQ(files_.resolve("/../.."), "/");
  files_.create_directory(path("d/e"));
  std::filesystem::create_symlink(path("d/e"), path("deep"));
  EXPECT_EQ(files_.resolve(path("deep/../x")), real + "/d/x");  // the parent of what it leads to
}

TEST_F(FileSystemTest, ResolvesADanglingLinkToWhatCreatingItMakes) {
  const std::string real = std::filesystem::canonical(directory_).string();
  files_.create_directory(path("d"));
  std::filesystem::create_symlink("../target", path("d/second"));
  std::filesystem::create_symlink(path("d/second"), path("first"));
  EXPECT_EQ(files_.resolve(path("first")), real + "/target");
  EXPECT_EQ(files_.resolve(path("first/a")), real + "/target/a");
  files_.create(path("first"))->close();
  EXPECT_EQ(files_.kind(real + "/target"), FileKind::kFile);
  EXPECT_EQ(files_.resolve(path("first")), real + "/target");
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
  EXPECT_THAT(message_of<NotFoundError>([&] { files_.read(path("none")); }),
              HasSubstr(path("none")));
}

TEST_F(FileSystemTest, ErrorsNameTheFileAndTheReason) {
  const auto failure = [](const auto& f) { return message_of<IoError>(f); };
  EXPECT_THAT(failure([&] { files_.create(path("no/such/folder")); }),
              HasSubstr(path("no/such/folder") + ": cannot create: No such file or directory"));
  EXPECT_THAT(failure([&] { files_.read(directory_); }),
              HasSubstr("is a directory, not a file to read"));
  EXPECT_THAT(failure([&] { files_.list(path("none")); }), HasSubstr(path("none")));
  EXPECT_THAT(failure([&] { files_.rename(path("none"), path("b")); }), HasSubstr(path("none")));
  EXPECT_THAT(failure([&] { files_.sync_directory(path("none")); }), HasSubstr(path("none")));
  write_text_file(files_, path("a"), "x");
  EXPECT_THAT(failure([&] { files_.create_directory(path("a/b")); }), HasSubstr(path("a/b")));
  const auto file = files_.create(path("b"));
  file->close();
  EXPECT_THAT(failure([&] { file->sync(); }), HasSubstr(path("b")));
}

TEST_F(FileSystemTest, WhatIsInTheWayOfALockIsNamed) {
  files_.create_directory(path("folder.lock"));
  std::filesystem::create_symlink("elsewhere", path("link.lock"));
  write_text_file(files_, path("file.lock"), "text");
  for (const char* name : {"folder.lock", "link.lock", "file.lock"}) {
    try {
      files_.lock(path(name));
      ADD_FAILURE() << name;
    } catch (const IoError& error) {
      EXPECT_EQ(error.what(), path(name) + " is in the way of a lock: move it away");
    }
  }
}

// Errors of memory name no file, so this one is no such error.
TEST(FileSystem, NamesTheFileThatMemoryHasNoRoomFor) {
  if (kSanitized) GTEST_SKIP() << "sanitizers end the program where memory is short";
  MemoryFileSystem disk("/disk");
  disk.create("/disk/large")->append(std::as_bytes(std::span("content")));
  disk.add_to_sizes(std::uint64_t{1} << 60);
  EXPECT_THAT(message_of<IoError>([&] { disk.read("/disk/large", std::uint64_t{1} << 61); }),
              ::testing::StartsWith("/disk/large: there is no memory for its "));
}

TEST_F(FileSystemTest, AFullDiskIsReported) {
  if (!files_.exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto file = files_.create("/dev/full");
  const std::string data(1000, 'x');
  EXPECT_THAT(message_of<IoError>([&] { file->append(std::as_bytes(std::span(data))); }),
              HasSubstr("/dev/full: cannot write: No space left on device"));
}

}  // namespace file_system_test
}  // namespace belfry
