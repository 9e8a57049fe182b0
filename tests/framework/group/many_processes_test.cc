// Dozens of processes: they hear of each other through a few.
#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "belfry/framework/base/text.h"
#include "belfry/framework/group/processes.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/memory_group.h"

namespace belfry {
namespace many_processes_test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Beats are as far apart as many threads on few cores need.
const WatchOptions kWatch{.beat = milliseconds(40), .most_silent = 50};

TEST(RankTree, HasEachRankBelowItsParent) {
  for (const int size : {1, 2, 3, 8, 13, 64, 100}) {
    int all = 0;
    for (int rank = 0; rank < size; ++rank) {
      const RankTree tree(rank, size);
      EXPECT_EQ(tree.parent, rank == 0 ? -1 : rank & (rank - 1));
      EXPECT_LE(tree.children.size(), 7u);
      for (const int child : tree.children) EXPECT_EQ(RankTree(child, size).parent, rank);
      all += static_cast<int>(tree.children.size());
    }
    EXPECT_EQ(all, size - 1) << size;
    int below = 1;
    const RankTree root(0, size);
    for (const int child : root.children) below += root.below(child);
    EXPECT_EQ(below, size);
  }
}

std::string text_of(int rank) {
  return std::string(rank % 5 == 4 ? 0 : static_cast<std::size_t>(40 * rank), 'x') + cat(rank);
}

TEST(ManyProcesses, GatherTextsOfAnyLengthAlongATree) {
  for (const int size : {2, 3, 6, 13, 32}) {
    test::MemoryNetwork network(size);
    test::run_in_memory(
        network, size,
        [&](const std::shared_ptr<Processes>& processes) {
          const std::string own = text_of(processes->rank());
          const std::vector<std::string> all = processes->gather(own);
          const std::vector<std::string> collected = processes->collect(own);
          ASSERT_EQ(std::ssize(all), size);
          for (int r = 0; r < size; ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text_of(r));
          EXPECT_EQ(collected, processes->rank() == 0 ? all : std::vector<std::string>());
        },
        kWatch);
    // Up twice and down once, each time a size and a text; and one byte up and down at the end.
    for (int r = 1; r < size; r += 2)  // these have no children
      EXPECT_EQ(network.traffic(r).messages, 5) << r << " of " << size;
    EXPECT_LE(network.traffic(0).messages, 5 * 3);
  }
}

// Each of its listeners hears from a process once in three beats.
TEST(ManyProcesses, LiveWithAShortLimitOfSilence) {
  constexpr int kSize = 40;
  const WatchOptions watch{.beat = milliseconds(50), .most_silent = 2};
  test::MemoryNetwork network(kSize, 8);
  test::run_in_memory(
      network, kSize,
      [&](const std::shared_ptr<Processes>& processes) {
        std::this_thread::sleep_for(milliseconds(1'000));
        EXPECT_EQ(std::ssize(processes->gather("x")), kSize);
      },
      watch);
}

// What becomes of `size` processes on eight hosts that gather texts again and again when `lose` has
// taken some of them away.
struct Losing {
  std::set<int> lost;
  std::string why;
  std::function<void(test::MemoryNetwork&)> lose;
  bool at_once = false;
  int size = 64;
  WatchOptions watch = kWatch;
};

void expect_named(const Losing& losing) {
  const int per_host = losing.size / 8;
  test::MemoryNetwork network(losing.size, per_host);
  std::atomic<int> rounds = 0;
  std::atomic<std::int64_t> lost_at = 0, last_ended_at = 0;
  const auto now = [] {
    return std::chrono::duration_cast<milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  const std::jthread loser([&] {
    while (!losing.at_once && rounds < 3) std::this_thread::sleep_for(milliseconds(1));
    lost_at = now();
    losing.lose(network);
  });
  test::run_in_memory(
      network, losing.size,
      [&](const std::shared_ptr<Processes>& processes) {
        if (losing.lost.contains(processes->rank())) {
          try {  // it may see that it is lost, or not
            for (;;) processes->gather("x");
          } catch (const std::exception&) {
          }
          return;
        }
        const std::string told = message_of<CommError>([&] {
          for (;;) {
            processes->gather("x");
            if (processes->rank() == 0) ++rounds;
          }
        });
        const bool named = std::ranges::any_of(losing.lost, [&](int rank) {
          return told.starts_with(cat("rank ", rank, ", host", rank / per_host, ": ", losing.why));
        });
        EXPECT_TRUE(named) << "rank " << processes->rank() << " says: " << told;
        last_ended_at = std::max<std::int64_t>(last_ended_at, now());
      },
      losing.watch);
  // More threads end as fast as their cores let them.
  if (losing.size <= 64) {
    EXPECT_LT(last_ended_at - lost_at, 10'000);
  }
}

void kill_all(test::MemoryNetwork& network, const std::set<int>& ranks) {
  for (const int rank : ranks) network.kill(rank);
}

void cut_all(test::MemoryNetwork& network, const std::set<int>& ranks) {
  for (const int rank : ranks) network.cut(rank);
}

std::set<int> ranks_of_host(int host, int per_host) {
  std::set<int> ranks;
  for (int r = 0; r < per_host; ++r) ranks.insert(host * per_host + r);
  return ranks;
}

constexpr char kEnded[] = "the process has ended";

TEST(ManyProcesses, AKilledInnerProcessIsNamedByAll) {
  expect_named({.lost = {32}, .why = kEnded, .lose = [](auto& network) { network.kill(32); }});
}

TEST(ManyProcesses, OfTwoKilledAtOnceOneIsNamed) {
  expect_named({.lost = {21, 22}, .why = kEnded, .lose = [](auto& network) {
                  kill_all(network, {22, 21});
                }});
}

TEST(ManyProcesses, OfALostHostAProcessIsNamed) {
  const std::set<int> lost = ranks_of_host(2, 8);
  expect_named({.lost = lost, .why = "no heartbeat for", .lose = [&](auto& network) {
                  cut_all(network, lost);
                }});
}

TEST(ManyProcesses, OneThatIsKilledAtTheStartIsNamed) {
  expect_named({.lost = {1},
                .why = kEnded,
                .lose = [](auto& network) { network.kill(1); },
                .at_once = true});
}

// With the heartbeats of programs.
Losing of_a_thousand(Losing losing) {
  losing.size = 1'024;
  losing.watch = {};
  return losing;
}

TEST(ManyProcessesLong, AThousandNameAKilledInnerProcess) {
  expect_named(of_a_thousand(
      {.lost = {512}, .why = kEnded, .lose = [](auto& network) { network.kill(512); }}));
}

TEST(ManyProcessesLong, AThousandNameOneOfTwoKilledAtOnce) {
  expect_named(of_a_thousand({.lost = {341, 342}, .why = kEnded, .lose = [](auto& network) {
                                kill_all(network, {342, 341});
                              }}));
}

TEST(ManyProcessesLong, AThousandNameOneOfAKilledHost) {
  const std::set<int> host = ranks_of_host(5, 128);
  expect_named(of_a_thousand(
      {.lost = host, .why = kEnded, .lose = [&](auto& network) { kill_all(network, host); }}));
}

TEST(ManyProcessesLong, AThousandNameOneOfALostHost) {
  const std::set<int> host = ranks_of_host(5, 128);
  expect_named(of_a_thousand({.lost = host, .why = "no heartbeat for", .lose = [&](auto& network) {
                                cut_all(network, host);
                              }}));
}

TEST(ManyProcessesLong, AThousandNameOneThatIsKilledAtTheStart) {
  expect_named(of_a_thousand({.lost = {1},
                              .why = kEnded,
                              .lose = [](auto& network) { network.kill(1); },
                              .at_once = true}));
}

// Rank 37 computes. All others wait, most of them for others that wait themselves.
TEST(ManyProcesses, WhoIsLateIsKnownToAll) {
  constexpr int kSize = 64;
  test::MemoryNetwork network(kSize);
  WatchOptions watch = kWatch;
  watch.stall_warn = milliseconds(2'000);
  ::testing::internal::CaptureStderr();
  test::run_in_memory(
      network, kSize,
      [&](const std::shared_ptr<Processes>& processes) {
        if (processes->rank() == 37) std::this_thread::sleep_for(milliseconds(4'000));
        processes->gather("x");
      },
      watch);
  const std::string told = ::testing::internal::GetCapturedStderr();
  std::size_t warnings = 0, naming_it_alone = 0;
  for (std::size_t at = 0; (at = told.find("has waited", at)) != told.npos; ++at) {
    ++warnings;
    // One that began to wait a moment ago may be named, too.
    const std::string line = told.substr(at, told.find('\n', at) - at);
    EXPECT_THAT(line, HasSubstr("rank 37, host0: is between two steps"));
    naming_it_alone += line.ends_with("late: rank 37, host0: is between two steps");
  }
  EXPECT_GT(naming_it_alone, warnings / 2);
  EXPECT_GT(warnings, 10u) << told;
}

// Rank 5 waits for a part that rank 4 never has; all others wait for its text.
TEST(ManyProcesses, ThatWaitForEachOtherAllEnd) {
  constexpr int kSize = 16;
  test::MemoryNetwork network(kSize);
  WatchOptions watch = kWatch;
  watch.stall_warn = {};
  watch.stall_end = milliseconds(1'500);
  test::run_in_memory(
      network, kSize,
      [&](const std::shared_ptr<Processes>& processes) {
        EXPECT_THAT(
            message_of<StallError>([&] {
              if (processes->rank() != 5) return void(processes->gather("x"));
              std::byte part{};
              std::vector<std::span<std::byte>> parts(kSize);
              parts[4] = {&part, 1};
              processes->fetch(7, 1, parts);
            }),
            AllOf(HasSubstr("all processes wait for each other"), HasSubstr("waits for rank ")));
      },
      watch);
}

}  // namespace many_processes_test
}  // namespace belfry
