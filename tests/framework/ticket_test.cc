// The chunks of a launch that workers share.
#include "belfry/framework/ticket.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace belfry {
namespace ticket_test {

using End = Ticket::End;

TEST(Ticket, GivesEveryChunkOnceFromWhicheverEnd) {
  std::mt19937 bits(1);
  Ticket ticket;
  for (const std::int64_t parts : {1, 2, 3, 17, 1000}) {
    ticket = ticket.opened();
    std::set<std::int64_t> taken;
    std::int64_t fronts = 0;
    while (ticket.open(parts)) {
      const End end = bits() % 2 == 0 ? End::kFront : End::kBack;
      const std::int64_t chunk = ticket.next(end, parts);
      EXPECT_EQ(chunk, end == End::kFront ? fronts++ : parts - 1 - (std::ssize(taken) - fronts));
      EXPECT_TRUE(taken.insert(chunk).second) << chunk;
      ticket = ticket.taken(end);
    }
    EXPECT_EQ(std::ssize(taken), parts);
    ticket = ticket.closed();
  }
}

TEST(Ticket, OfAClosedOpeningIsForNoLaunch) {
  EXPECT_FALSE(Ticket().open(1 << 20));
  EXPECT_FALSE(Ticket().opened().taken(End::kBack).closed().open(1 << 20));
  EXPECT_TRUE(Ticket().opened().taken(End::kBack).closed().opened().open(1));
}

}  // namespace ticket_test
}  // namespace belfry
