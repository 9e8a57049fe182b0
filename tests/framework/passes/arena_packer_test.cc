#include "belfry/framework/passes/arena_packer.h"

#include <gtest/gtest.h>

namespace belfry {
namespace arena_packer_test {

// Strand 0 runs launches 0, 1, 2 and 3; strand 1 runs 4, which has waited for 1, and 5.
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

}  // namespace arena_packer_test
}  // namespace belfry
