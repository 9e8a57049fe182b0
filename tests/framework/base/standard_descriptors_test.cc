#include <array>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"

namespace belfry {
namespace standard_descriptors_test {

bool waits(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0; }

// Makes `fd` descriptor 1 while it lives.
class StandardOutput {
 public:
  explicit StandardOutput(int fd) : kept_(::dup(1)) { ::dup2(fd, 1); }
  ~StandardOutput() {
    ::dup2(kept_, 1);
    ::close(kept_);
  }

 private:
  int kept_;
};

TEST(StandardDescriptors, WaitForTheReaderOfAPipeThatOthersLeftNotToWait) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  {
    const StandardOutput replaced(ends[1]);
    prepare_standard_descriptors();
    EXPECT_TRUE(waits(1));
    EXPECT_FALSE(waits(ends[1])) << "others want it as it is";
    EXPECT_EQ(::write(1, "text", 4), 4);
  }
  std::array<char, 8> got{};
  EXPECT_EQ(::read(ends[0], got.data(), got.size()), 4);
  for (const int fd : ends) ::close(fd);
}

TEST(StandardDescriptors, DoNotWaitForAReaderThatIsGone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  ::close(ends[0]);
  {
    const StandardOutput replaced(ends[1]);
    prepare_standard_descriptors();
    EXPECT_TRUE(waits(1));
  }
  ::close(ends[1]);
}

TEST(StandardDescriptors, OfASocketWait) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  {
    const StandardOutput replaced(ends[1]);
    prepare_standard_descriptors();
    EXPECT_TRUE(waits(1));
  }
  for (const int fd : ends) ::close(fd);
}

}  // namespace standard_descriptors_test
}  // namespace belfry
