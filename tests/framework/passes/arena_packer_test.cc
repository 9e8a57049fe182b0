#include "belfry/framework/passes/arena_packer.h"

#include <algorithm>
#include <ctime>
#include <random>

#include <gtest/gtest.h>

#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace arena_packer_test {

// Strand 0 runs launches 0, 1, 2 and 3. Strand 1 runs launch 4, which has waited for 1, and launch
// 5.
class ArenaPackerTest : public ::testing::Test {
 protected:
  ArenaPackerTest() {
    schedule_.clocks = Clocks(2);
    schedule_.strands.resize(2);
    for (int l = 0; l < 6; ++l) add(l < 4 ? 0 : 1);
    for (const int l : {4, 5})
      schedule_.launches[LaunchIndex(l)].clock =
          schedule_.clocks.with(Clocks::kNothing, StrandIndex(0), 2);
  }

  void add(int strand) {
    Launch launch{};
    launch.node = NodeIndex(schedule_.launches.size());
    launch.strand = StrandIndex(strand);
    launch.clock = Clocks::kNothing;
    auto& launches = schedule_.strands[launch.strand].launches;
    launch.position = static_cast<int>(launches.size());
    launches.push_back(schedule_.launches.add(std::move(launch)));
  }

  std::int64_t put(std::int64_t bytes, std::initializer_list<int> uses) {
    std::vector<LaunchIndex> launches;
    for (const int use : uses) launches.emplace_back(use);
    return packer_.put(bytes, launches);
  }

  ExecutionSchedule schedule_;
  ArenaPacker packer_{schedule_};
};

TEST_F(ArenaPackerTest, BlocksShareMemoryIfOneIsUsedUpBeforeTheOtherIsWritten) {
  EXPECT_EQ(put(128, {0, 1}), 0);
  EXPECT_EQ(put(64, {2, 3}), 0);
  EXPECT_EQ(put(64, {1, 2}), 128) << "both are used by one launch";
  EXPECT_EQ(put(64, {4, 5}), 64) << "4 waits for 1, but not for 2";
  EXPECT_EQ(packer_.end(), 192);
}

TEST_F(ArenaPackerTest, BlocksOfOneLifetimeLieBesideEachOther) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(put(64, {0, 1}), 64 * i);
  EXPECT_EQ(put(64, {1, 2}), 5 * 64);
  EXPECT_EQ(put(64, {2, 3}), 0);
  EXPECT_EQ(put(320, {4}), 384) << "beside all that 2 uses, and over what 0 and 1 used"
                                << " there is no room";
}

TEST_F(ArenaPackerTest, SmallBlocksFillGaps) {
  EXPECT_EQ(put(128, {0, 1}), 0);
  EXPECT_EQ(put(128, {1, 2}), 128);
  EXPECT_EQ(put(64, {2, 3}), 0);
  EXPECT_EQ(put(64, {2, 3}), 64);
  EXPECT_EQ(put(64, {2, 3}), 256) << "the gap is full";
}

// Launches 6 and 7 write together. 7 waits for 1, but not for 2 or 3.
TEST_F(ArenaPackerTest, BlocksOfSeveralWritersComeAfterAllUsesOfOthersForEachOfThem) {
  add(0);
  add(1);
  schedule_.launches[LaunchIndex(7)].clock = schedule_.launches[LaunchIndex(5)].clock;
  EXPECT_EQ(put(64, {2, 3}), 0);
  EXPECT_EQ(put(64, {6}), 0);
  schedule_.launches[LaunchIndex(7)].node = schedule_.launches[LaunchIndex(6)].node;
  EXPECT_EQ(put(64, {6, 7}), 64);
}

// There are far more blocks than the packer looks at one by one. Each must lie where a search
// through all earlier blocks puts it by the rule.
TEST_F(ArenaPackerTest, ManyBlocksLieWhereASearchThroughAllPutsThem) {
  struct Block {
    std::int64_t begin, end;
    std::vector<LaunchIndex> uses;
  };
  // Strand 1 follows strand 0 three launches later.
  for (int l = 6; l < 60; ++l) {
    add(l % 2);
    if (l % 2 == 1)
      schedule_.launches.back().clock =
          schedule_.clocks.with(Clocks::kNothing, StrandIndex(0), l / 2 - 2);
  }
  std::vector<Block> placed;
  const auto before = [&](const Block& a, const Block& b) {
    return std::ranges::all_of(a.uses, [&](LaunchIndex use) {
      return use < b.uses.front() && schedule_.happens_before(use, b.uses.front());
    });
  };
  std::mt19937 random(7);
  for (int i = 0; i < 800; ++i) {
    Block block{0, 64 * static_cast<std::int64_t>(1 + random() % 4), {}};
    const int first = static_cast<int>(random() % 60);
    const int last = std::min(59, first + static_cast<int>(random() % 20));
    for (int l = first; l <= last; ++l) block.uses.emplace_back(l);
    const std::int64_t bytes = block.end;
    for (const Block& other : placed) {
      if (before(block, other) || before(other, block)) continue;
      if (other.begin - block.begin >= bytes) break;
      block.begin = std::max(block.begin, other.end);
    }
    block.end = block.begin + bytes;
    ASSERT_EQ(packer_.put(bytes, block.uses), block.begin) << "block " << i;
    placed.insert(std::ranges::upper_bound(placed, block.begin, {}, &Block::begin), block);
  }
}

// Seconds of this thread's CPU time for tensors that are dropped one after the other, and others
// that take their place and are all kept.
double seconds_to_pack(int tensors) {
  ExecutionSchedule schedule;
  schedule.clocks = Clocks(1);
  schedule.strands.resize(1);
  for (int l = 0; l < 2 * tensors + 2; ++l) {
    Launch launch{};
    launch.node = NodeIndex(l);
    launch.strand = StrandIndex(0);
    launch.clock = Clocks::kNothing;
    launch.position = l;
    schedule.strands[StrandIndex(0)].launches.push_back(schedule.launches.add(std::move(launch)));
  }
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  ArenaPacker packer(schedule);
  const auto put = [&](int first, int last) {
    packer.put(256, std::vector{LaunchIndex(first), LaunchIndex(last)});
  };
  for (int i = 0; i < tensors; ++i) put(i, tensors + i);
  for (int i = 0; i < tensors; ++i) put(tensors + 1 + i, 2 * tensors + 1);
  EXPECT_LE(packer.end(), 256 * 2 * tensors);
  return now() - begin;
}

TEST(ArenaPackerTime, GrowsInProportionToBlocks) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have times of their own";
  const double few = std::min(seconds_to_pack(5000), seconds_to_pack(5000));
  const double many = std::min(seconds_to_pack(20000), seconds_to_pack(20000));
  EXPECT_LT(many, 8 * few) << few << " s and " << many << " s; 16 times as long if it is quadratic";
}

}  // namespace arena_packer_test
}  // namespace belfry
