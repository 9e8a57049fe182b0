#include "belfry/trainers/commands/command_output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/child_process.h"

namespace belfry {
namespace command_output_test {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr milliseconds kNever = std::chrono::hours(24);

// More than a pipe holds.
CommandOutputOptions options_for(const Pipe& pipe, milliseconds patience) {
  return {.kept_in = "logs/rank_0.log",
          .output = pipe.in.number(),
          .errors = pipe.in.number(),
          .room = 2 * CommandOutput::kMostAtOnce,
          .patience = patience,
          .hurried_patience = milliseconds(20)};
}

void nap() { std::this_thread::sleep_for(milliseconds(1)); }

std::string read_to_end(const OpenFile& file) {
  std::string text;
  std::array<char, 1000> bytes;
  for (ssize_t count = 1; count > 0;) {
    count = ::read(file.number(), bytes.data(), bytes.size());
    text.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  return text;
}

// Until nothing fits any more.
void fill(const Pipe& pipe) {
  const int file = pipe.in.number(), flags = ::fcntl(file, F_GETFL);
  ASSERT_EQ(::fcntl(file, F_SETFL, flags | O_NONBLOCK), 0);
  while (::write(file, "x", 1) == 1) {
  }
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(::fcntl(file, F_SETFL, flags), 0);
}

TEST(CommandOutput, GivesASlowReaderEverythingInOrder) {
  Pipe pipe = make_pipe();
  std::string all, read;
  std::jthread reader([&] { read = read_to_end(pipe.out); });
  {
    CommandOutput output(options_for(pipe, kNever));
    for (int i = 0; i < 100'000; ++i) {
      const std::string line = cat("line ", i, "\n");
      while (output.is_full()) nap();
      i % 2 == 0 ? output.print(line) : output.print_error(line);
      all += line;
    }
  }
  pipe.in.close();
  reader.join();
  EXPECT_EQ(read, all);
}

TEST(CommandOutput, WaitsForNobodyWhoReadsNothing) {
  const Pipe pipe = make_pipe();
  const std::string much(CommandOutput::kMostAtOnce, 'x');
  for (const bool hurries : {false, true}) {
    CommandOutput output(options_for(pipe, hurries ? kNever : milliseconds(20)));
    for (int i = 0; i < 10; ++i) output.print(much);
    output.hurry(hurries);
    while (output.is_full()) nap();
    while (!output.is_settled()) nap();
  }
}

TEST(CommandOutput, SaysWhatItHasLeftOut) {
  Pipe pipe = make_pipe();
  fill(pipe);  // so that how much fits does not depend on the speed of the writer
  const std::string much(CommandOutput::kMostAtOnce, 'x');
  std::string read;
  std::jthread reader;
  {
    CommandOutput output(options_for(pipe, kNever));
    for (int i = 0; i < 10; ++i) output.print(much);
    EXPECT_TRUE(output.is_full());
    reader = std::jthread([&] { read = read_to_end(pipe.out); });
    while (!output.is_settled()) nap();
    output.print("the end\n");
  }
  pipe.in.close();
  reader.join();
  EXPECT_THAT(read, HasSubstr(cat("x\nbelfry run: ", 8 * much.size(),
                                  " bytes of output, which nobody read in time, are left out here; "
                                  "logs/rank_0.log has them\n")));
  EXPECT_THAT(read, EndsWith("\nthe end\n"));
}

TEST(CommandOutput, GoesOnWhenItsReaderHasGone) {
  Pipe pipe = make_pipe();
  pipe.out.close();
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // as main() has it
  {
    CommandOutput output(options_for(pipe, kNever));
    for (int i = 0; i < 10; ++i) output.print("text");
    while (!output.is_settled()) nap();
  }
  std::signal(SIGPIPE, before);
}

}  // namespace command_output_test
}  // namespace belfry
