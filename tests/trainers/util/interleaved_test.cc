#include "belfry/trainers/util/interleaved.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace belfry {
namespace interleaved_test {

// The calls without those that belong together.
std::string turns(const std::string& calls) {
  std::string result;
  for (const char call : calls)
    if (result.empty() || result.back() != call) result += call;
  return result;
}

// Only the ways of a test let time pass, in powers of two, which doubles add exactly.
double time_of_test = 0;
constexpr double kMillisecond = 0x1p-10;

class InterleavedTest : public testing::Test {
 protected:
  Interleaved ways_{[] { return time_of_test; }};
};

TEST(Interleaved, TimesByTheClockOfSteps) {
  Interleaved ways;
  ways.add([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
  ways.run(0, 2);
  EXPECT_GE(ways.seconds(0), 200e-6);
}

TEST_F(InterleavedTest, WarmsUpThenTimesInFiveRoundsOverAllWays) {
  std::string calls;
  const auto way = [&](char name) {
    return ways_.add([&calls, name] {
      calls += name;
      time_of_test += kMillisecond;  // one call settles it
    });
  };
  EXPECT_EQ(way('a'), 0);
  EXPECT_EQ(way('b'), 1);
  ways_.run(2, 12);
  EXPECT_EQ(calls.substr(0, 4), "aabb");
  EXPECT_EQ(turns(calls), "abababababab");     // warm-up and five rounds
  EXPECT_EQ(calls.size(), 2 * (2 + 5 + 12u));  // warm-up, one call to settle a round, timed ones
  EXPECT_EQ(ways_.seconds(1), kMillisecond);
  EXPECT_EQ(ways_.rounds(1), std::vector(5, kMillisecond));
}

TEST_F(InterleavedTest, TakesFewerRoundsForFewerCallsAndStartsAfreshEachTime) {
  int calls = 0;
  ways_.add([&] {
    ++calls;
    time_of_test += kMillisecond;
  });
  ways_.run(0, 2);
  EXPECT_EQ(ways_.rounds(0).size(), 2u);
  ways_.run(0, 1);
  EXPECT_EQ(ways_.rounds(0).size(), 1u);
  EXPECT_EQ(calls, 4 + 2);
}

TEST(Interleaved, TellsHowManyCallsWereMade) {
  Interleaved ways;
  std::vector<std::int64_t> told;
  for (int way = 0; way < 2; ++way) ways.add([] {});
  ways.on_call([&](std::int64_t made, std::int64_t all) {
    EXPECT_EQ(all, 2 * (1 + 3));
    told.push_back(made);
  });
  for (int run = 0; run < 2; ++run) {
    told.clear();
    ways.run(1, 3);
    EXPECT_EQ(told, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8})) << run;
  }
}

// Each call takes the whole share of a round, or a thousandth of it.
TEST_F(InterleavedTest, EndsARoundOfSlowCallsAfterItsShareOfTheTime) {
  int slow = 0, fast = 0;
  ways_.add([&] {
    ++slow;
    time_of_test += 2 * kMillisecond;
  });
  ways_.add([&] {
    ++fast;
    time_of_test += kMillisecond / 512;
  });
  ways_.run(0, 500, 10 * kMillisecond);
  EXPECT_EQ(slow, 5 * (1 + 2));     // one call to settle, then until more than 2 ms are over
  EXPECT_EQ(fast, 5 * (53 + 100));  // the fast ones settle for 100 us
}

}  // namespace interleaved_test
}  // namespace belfry
