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

TEST(Interleaved, WarmsUpThenTimesInFiveRoundsOverAllWays) {
  Interleaved ways;
  std::string calls;
  const auto way = [&](char name) {
    return ways.add([&calls, name] {
      calls += name;
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // one call settles it
    });
  };
  EXPECT_EQ(way('a'), 0);
  EXPECT_EQ(way('b'), 1);
  ways.run(2, 12);
  EXPECT_EQ(calls.substr(0, 4), "aabb");
  EXPECT_EQ(turns(calls), "abababababab");     // warm-up and five rounds
  EXPECT_EQ(calls.size(), 2 * (2 + 5 + 12u));  // warm-up, one call to settle a round, timed ones
  EXPECT_EQ(ways.rounds(0).size(), 5u);
  EXPECT_GE(ways.seconds(1), 200e-6);
  for (const double round : ways.rounds(1)) EXPECT_GE(round, 200e-6);
}

TEST(Interleaved, TakesFewerRoundsForFewerCallsAndStartsAfreshEachTime) {
  Interleaved ways;
  int calls = 0;
  ways.add([&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  ways.run(0, 2);
  EXPECT_EQ(ways.rounds(0).size(), 2u);
  ways.run(0, 1);
  EXPECT_EQ(ways.rounds(0).size(), 1u);
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

TEST(Interleaved, EndsARoundOfSlowCallsAfterItsShareOfTheTime) {
  Interleaved ways;
  int slow = 0, fast = 0;
  ways.add([&] {
    ++slow;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  ways.add([&] { ++fast; });
  ways.run(0, 500, 10e-3);
  EXPECT_LE(slow, 5 * (1 + 2));  // one call to settle, then until 2 ms are over
  EXPECT_GE(slow, 5 * (1 + 1));
  EXPECT_GE(fast, 500);
}

}  // namespace interleaved_test
}  // namespace belfry
