#include "belfry/framework/passes/packed_arenas.h"

#include <optional>

#include <gtest/gtest.h>

namespace belfry {
namespace packed_arenas_test {

// Four strands have launches 0, 1 and 2 each. Then strand 3 runs a sum, which has waited for launch
// 1 of all strands.
class PackedArenasTest : public ::testing::Test {
 protected:
  PackedArenasTest() {
    schedule_.clocks = Clocks(4);
    schedule_.strands.resize(4);
    for (int s = 0; s < 4; ++s)
      for (int l = 0; l < 3; ++l) add(s, Clocks::kNothing);
    Clocks::Clock waited = Clocks::kNothing;
    for (int s = 0; s < 3; ++s) waited = schedule_.clocks.with(waited, StrandIndex(s), 2);
    sum_ = add(3, waited);
    arenas_.emplace(schedule_);
  }

  LaunchIndex add(int strand, Clocks::Clock clock) {
    Launch launch{};
    launch.node = NodeIndex(schedule_.launches.size());
    launch.strand = StrandIndex(strand);
    launch.clock = clock;
    auto& launches = schedule_.strands[launch.strand].launches;
    launch.position = static_cast<int>(launches.size());
    launches.push_back(schedule_.launches.add(std::move(launch)));
    return launches.back();
  }

  LaunchIndex launch(int strand, int position) const { return LaunchIndex(3 * strand + position); }

  // Packs a gradient that the sum reads, and two tensors that live one after the other.
  std::vector<std::int64_t> pack(int strand, std::int64_t gradient = 64) {
    const std::vector<std::vector<LaunchIndex>> uses{
        {launch(strand, 1), sum_},
        {launch(strand, 0), launch(strand, 1)},
        {launch(strand, 2)},
    };
    return arenas_->pack(std::vector<ArenaBlock>{{gradient, uses[0]}, {64, uses[1]}, {64, uses[2]}})
        .offsets;
  }

  ExecutionSchedule schedule_;
  LaunchIndex sum_;
  std::optional<PackedArenas> arenas_;
};

TEST_F(PackedArenasTest, ArenasOfEqualTowersArePackedOnce) {
  const std::vector<std::int64_t> offsets{0, 64, 64};
  for (const int strand : {0, 1, 2, 0}) EXPECT_EQ(pack(strand), offsets);
  EXPECT_EQ(arenas_->packed(), 1U);
}

TEST_F(PackedArenasTest, AnotherSizeMakesAnotherArena) {
  pack(0);
  EXPECT_EQ(pack(1, 128), (std::vector<std::int64_t>{0, 128, 128}));
  EXPECT_EQ(arenas_->packed(), 2U);
}

TEST_F(PackedArenasTest, AnotherOrderOfUsesMakesAnotherArena) {
  pack(0);
  EXPECT_EQ(pack(3), (std::vector<std::int64_t>{0, 64, 64})) << "the sum is on its own strand";
  EXPECT_EQ(arenas_->packed(), 2U);
}

TEST_F(PackedArenasTest, OtherWaitsMakeAnotherArena) {
  const LaunchIndex waiting = add(0, schedule_.clocks.with(Clocks::kNothing, StrandIndex(1), 3));
  const LaunchIndex not_waiting = add(2, Clocks::kNothing);
  PackedArenas arenas(schedule_);
  const auto end_of = [&](LaunchIndex late) {
    const std::vector<LaunchIndex> early{launch(1, 2)}, own{late};
    return arenas.pack(std::vector<ArenaBlock>{{64, early}, {64, own}}).bytes;
  };
  EXPECT_EQ(end_of(waiting), 64);
  EXPECT_EQ(end_of(not_waiting), 128) << "both may be in use at once";
  EXPECT_EQ(arenas.packed(), 2U);
}

}  // namespace packed_arenas_test
}  // namespace belfry
