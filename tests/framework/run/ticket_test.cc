// The parts of a launch that workers share.
#include "belfry/framework/run/ticket.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace belfry {
namespace ticket_test {

using End = Ticket::End;

TEST(Ticket, GivesEveryPartOnceFromWhicheverEnd) {
  std::mt19937 bits(1);
  Ticket ticket;
  for (const std::int64_t parts : {1, 2, 3, 17, 1000}) {
    ticket = ticket.opened();
    std::set<std::int64_t> taken;
    std::int64_t fronts = 0;
    while (ticket.has_part(parts)) {
      const End end = bits() % 2 == 0 ? End::kFront : End::kBack;
      const std::int64_t part = ticket.next(end, parts);
      EXPECT_EQ(part, end == End::kFront ? fronts++ : parts - 1 - (std::ssize(taken) - fronts));
      EXPECT_TRUE(taken.insert(part).second) << part;
      ticket = ticket.taken(end);
    }
    EXPECT_EQ(std::ssize(taken), parts);
    ticket = ticket.closed();
  }
}

TEST(Ticket, OfAClosedOpeningIsForNoLaunch) {
  EXPECT_FALSE(Ticket().has_part(1 << 20));
  EXPECT_FALSE(Ticket().opened().taken(End::kBack).closed().has_part(1 << 20));
  EXPECT_TRUE(Ticket().opened().taken(End::kBack).closed().opened().has_part(1));
}

TEST(Ticket, IsOfAnotherOpeningUntilNumbersBeginAgain) {
  const Ticket late = Ticket().opened().taken(End::kBack);
  Ticket ticket = late;
  for (std::int64_t opening = 1; opening < Ticket::kOpenings; ++opening) {
    ticket = ticket.closed().opened().taken(End::kBack);
    ASSERT_NE(ticket, late) << opening;
  }
  EXPECT_EQ(ticket.closed().opened().taken(End::kBack), late);
}

TEST(Ticket, GivesEveryPartOnceAcrossTheEndOfTheNumbers) {
  Ticket ticket;
  for (std::int64_t opening = 1; opening + 2 < Ticket::kOpenings; ++opening)
    ticket = ticket.opened().closed();
  for (int opening = 0; opening < 5; ++opening) {
    const Ticket before = ticket;
    ticket = ticket.opened();
    EXPECT_NE(ticket, before);
    std::set<std::int64_t> taken;
    for (; ticket.has_part(3); ticket = ticket.taken(taken.size() % 2 ? End::kBack : End::kFront))
      taken.insert(ticket.next(taken.size() % 2 ? End::kFront : End::kBack, 3));
    EXPECT_FALSE(ticket.closed().has_part(3));
    ticket = ticket.closed();
  }
}

}  // namespace ticket_test
}  // namespace belfry
