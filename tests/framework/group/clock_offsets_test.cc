#include <chrono>
#include <cstdlib>
#include <thread>

#include "belfry/framework/group/clock_offsets_impl.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace clock_offsets_test {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// The offsets that each of `size` processes finds. The clock of rank r is r * `apart` ahead.
std::vector<std::vector<ClockOffset>> found(int size, std::int64_t apart) {
  TcpGroupOptions options = test::local_processes(size);
  std::vector<std::vector<ClockOffset>> all(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    options.rank = rank;
    threads.emplace_back([&all, options, rank, apart] {
      const std::unique_ptr<ProcessGroup> group = connect_tcp(options);
      all[static_cast<std::size_t>(rank)] =
          clock_offsets_by(*group, [&] { return nanoseconds() + rank * apart; });
    });
  }
  threads.clear();
  return all;
}

TEST(ClockOffsets, AreTrueWithinTheirBound) {
  constexpr std::int64_t kApart = 3'000'000'000;
  for (const std::vector<ClockOffset>& offsets : found(3, kApart)) {
    ASSERT_EQ(offsets.size(), 3u);
    EXPECT_EQ(offsets[0].offset, 0);
    EXPECT_EQ(offsets[0].error, 0);
    for (std::size_t r = 1; r < 3; ++r) {
      EXPECT_GT(offsets[r].error, 0);
      const auto truth = static_cast<std::int64_t>(r) * kApart;
      EXPECT_LE(std::abs(offsets[r].offset - truth), offsets[r].error) << "rank " << r;
    }
  }
}

TEST(ClockOffsets, AreTheSameInAllProcesses) {
  const std::vector<std::vector<ClockOffset>> all = found(3, -5);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(all[1][r].offset, all[0][r].offset);
    EXPECT_EQ(all[2][r].error, all[0][r].error);
  }
}

TEST(ClockOffsets, OfOneProcessAreNothing) {
  const std::vector<ClockOffset> alone = found(1, 7)[0];
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone[0].offset, 0);
}

}  // namespace clock_offsets_test
}  // namespace belfry
