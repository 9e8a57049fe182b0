// Writes through open descriptors, refusals to read other things than files, and locks.
#include <csignal>
#include <filesystem>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/base/memory_file_system.h"
#include "belfry/tests/framework/framework_test_support.h"

namespace belfry {
namespace streams_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StreamsTest : public ::testing::Test {
 protected:
  StreamsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "belfry-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~StreamsTest() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string text(const std::string& name) {
    const auto bytes = files_.read(path(name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  mode_t mode(const std::string& name) const {
    struct stat status = {};
    EXPECT_EQ(::stat(path(name).c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  std::string pipe() const {
    EXPECT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    return path("pipe");
  }
  std::string socket() const {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
    return path("socket");
  }

  FileSystem& files_ = local_file_system();
  std::string directory_;
};

// The program was started with N>>log.
class DescriptorTest : public StreamsTest {
 protected:
  DescriptorTest() {
    write_text_file(files_, path("log"), "old\n");
    fd_ = ::open(path("log").c_str(), O_WRONLY | O_APPEND);
  }
  ~DescriptorTest() override { ::close(fd_); }

  int fd_;
};

TEST_F(DescriptorTest, HoweverItIsNamedIsAddedToAndNeverReplaced) {
  std::string wanted = "old\n";
  for (const std::string& name : {cat("/dev/fd/", fd_), cat("/proc/self/fd/", fd_)}) {
    EXPECT_EQ(files_.descriptor(name), fd_) << name;
    write_text_file(files_, name, "new\n");
    EXPECT_EQ(text("log"), wanted += "new\n") << name;
  }
  EXPECT_THAT(files_.list(directory_), ElementsAre("log"));
  ASSERT_EQ(::write(fd_, "own\n", 4), 4) << "it stays open";
  EXPECT_EQ(text("log"), wanted + "own\n");
}

TEST_F(DescriptorTest, OfStandardStreamsHasItsNumber) {
  EXPECT_EQ(files_.descriptor("/dev/stdout"), 1);
  EXPECT_EQ(files_.descriptor("/dev/stderr"), 2);
  for (const std::string& other : {path("log"), path("none"), directory_, std::string("/dev/null"),
                                   std::string("/dev/fd/x"), std::string("/dev/fd/")})
    EXPECT_EQ(files_.descriptor(other), -1) << other;
}

TEST_F(DescriptorTest, ThatStandardOutputGoesToIsThatFileToo) {
  const int kept = ::dup(1);
  ::dup2(fd_, 1);
  const int found = files_.descriptor(path("log"));
  write_text_file(files_, path("log"), "new\n");
  ::dup2(kept, 1);
  ::close(kept);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(text("log"), "old\nnew\n");
}

TEST_F(DescriptorTest, ThatCannotBeWrittenIsRefused) {
  EXPECT_THAT(message_of<IoError>([&] { files_.open_stream("/dev/fd/987"); }),
              HasSubstr("/dev/fd/987: cannot write: Bad file descriptor"));
  const int reader = ::open(path("log").c_str(), O_RDONLY);
  EXPECT_THAT(message_of<IoError>([&] { files_.open_stream(cat("/dev/fd/", reader)); }),
              HasSubstr("is open to be read alone"));
  ::close(reader);
}

TEST_F(StreamsTest, OtherFilesAreNoStreams) {
  write_text_file(files_, path("a"), "x");
  EXPECT_EQ(files_.open_stream(path("a")), nullptr);
  EXPECT_EQ(files_.open_stream(path("none")), nullptr);
  EXPECT_NE(files_.open_stream("/dev/null"), nullptr);
}

TEST_F(StreamsTest, PipesNeedAReader) {
  const std::string name = pipe();
  EXPECT_THAT(message_of<IoError>([&] { write_text_file(files_, name, "x"); }),
              HasSubstr("/pipe is a pipe that no process reads; start the reader first"));
  const int reader = ::open(name.c_str(), O_RDONLY | O_NONBLOCK);
  write_text_file(files_, name, "x");
  char got = 0;
  EXPECT_EQ(::read(reader, &got, 1), 1);
  ::close(reader);
  EXPECT_EQ(got, 'x');
  EXPECT_EQ(files_.kind(name), FileKind::kOther);
}

TEST_F(StreamsTest, WhatIsNoFileIsNotWritten) {
  const auto refusal = [&](const std::string& name) {
    return message_of<IoError>([&] { write_text_file(files_, name, "x"); });
  };
  EXPECT_THAT(refusal(directory_), HasSubstr(directory_ + " is a directory, not a file"));
  EXPECT_THAT(refusal(socket()), HasSubstr("/socket is a socket, not a file"));
  for (const char* name : {"new/", "new/.", "new/.."})
    EXPECT_THAT(refusal(path(name)), HasSubstr(" names a directory")) << name;
  EXPECT_THAT(files_.list(directory_), ElementsAre("socket"));
}

TEST_F(StreamsTest, AFileThatIsReplacedKeepsItsPermissions) {
  write_text_file(files_, path("fresh"), "x");
  EXPECT_EQ(mode("fresh") & 0600, 0600u);
  for (const mode_t wanted : {0600, 0640, 0666, 0755}) {
    write_text_file(files_, path("a"), "old");
    std::filesystem::permissions(path("a"), std::filesystem::perms(wanted));
    write_text_file(files_, path("a"), "new");
    EXPECT_EQ(mode("a"), wanted);
  }
  EXPECT_EQ(text("a"), "new");
}

TEST_F(StreamsTest, OnlyRegularFilesAreRead) {
  const auto refusal = [&](const std::string& name) {
    return message_of<IoError>([&] { files_.read(name); });
  };
  EXPECT_EQ(refusal(directory_), directory_ + ": is a directory, not a file to read");
  EXPECT_EQ(refusal(pipe()), path("pipe") + ": is a pipe, not a file to read");
  EXPECT_EQ(refusal(socket()), path("socket") + ": is a socket, not a file to read");
  EXPECT_EQ(refusal("/dev/zero"), "/dev/zero: is a device, not a file to read");
  std::filesystem::create_symlink("/dev/zero", path("link"));
  EXPECT_EQ(refusal(path("link")), path("link") + ": is a device, not a file to read");
}

TEST_F(StreamsTest, AFileOfMoreThanItMayHaveIsNotRead) {
  write_text_file(files_, path("a"), "12345");
  EXPECT_EQ(files_.read(path("a"), 5).size(), 5u);
  EXPECT_EQ(message_of<IoError>([&] { files_.read(path("a"), 4); }),
            path("a") + ": has 5 bytes, more than the 4 that such a file may have");
  ASSERT_EQ(::truncate(path("a").c_str(), off_t{1} << 40), 0);
  EXPECT_THAT(message_of<IoError>([&] { files_.read(path("a")); }),
              HasSubstr("has 1099511627776 bytes, more than the 67108864 "));
}

// The size of such files is 0.
TEST_F(StreamsTest, FilesThatTheKernelMakesUpAreReadToTheirEnd) {
  EXPECT_GT(files_.read("/proc/self/status").size(), 100u);
  EXPECT_THAT(message_of<IoError>([&] { files_.read("/proc/self/status", 10); }),
              HasSubstr("more than the 10 that such a file may have"));
}

TEST(ReadFile, ThatChangesMeanwhileIsAnError) {
  for (const std::size_t length : {3u, 9u}) {
    MemoryFileSystem disk("/disk");
    const auto write = [](MemoryFileSystem& files, std::size_t bytes) {
      files.create("/disk/a")->append(std::vector<std::byte>(bytes));
    };
    write(disk, 6);
    disk.at_call(1, [&](MemoryFileSystem& files) { write(files, length); });
    EXPECT_THAT(message_of<IoError>([&] { disk.read("/disk/a"); }),
                HasSubstr("/disk/a: was changed while it was read: it had 6 bytes, then "));
  }
}

TEST_F(StreamsTest, ALockIsHeldOnceAndLeavesNoFile) {
  auto lock = files_.lock(path("lock"));
  ASSERT_NE(lock, nullptr);
  EXPECT_EQ(files_.lock(path("lock")), nullptr);
  lock.reset();
  EXPECT_THAT(files_.list(directory_), IsEmpty());
  EXPECT_NE(files_.lock(path("lock")), nullptr);
}

TEST_F(StreamsTest, ALockEndsWithItsProcessWhateverRemains) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = files_.lock(path("lock"));
    [[maybe_unused]] const ssize_t sent = ::write(told[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char got = 0;
  ASSERT_EQ(::read(told[0], &got, 1), 1);
  EXPECT_EQ(files_.lock(path("lock")), nullptr);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int fd : told) ::close(fd);
  EXPECT_THAT(files_.list(directory_), ElementsAre("lock"));
  EXPECT_NE(files_.lock(path("lock")), nullptr);
  EXPECT_THAT(files_.list(directory_), IsEmpty());
}

TEST_F(StreamsTest, ALockTouchesNothingElse) {
  write_text_file(files_, path("a"), "x");
  EXPECT_THAT(message_of<IoError>([&] { files_.lock(path("a")); }),
              HasSubstr("/a is in the way of a lock: move it away"));
  EXPECT_THROW(files_.lock(directory_), IoError);
  EXPECT_EQ(text("a"), "x");
}

}  // namespace streams_test
}  // namespace belfry
