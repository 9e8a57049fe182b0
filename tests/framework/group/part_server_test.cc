#include "belfry/framework/group/part_server.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/framework/group/socket_pairs.h"
#include "belfry/tests/support/memory_group.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace part_server_test {

using Clock = std::chrono::steady_clock;
using ::testing::ElementsAre;

MemoryBlock bytes_of(int rank, std::size_t count) {
  MemoryBlock block(host_allocator(), count);
  block.store(std::vector<std::byte>(count, static_cast<std::byte>(rank + 1)).data());
  return block;
}

// The whole of a block, which no run changes.
const std::atomic<std::uint64_t> kNoRuns = 0;
PublishedPart all_of(const MemoryBlock& block) { return {&block, 0, block.bytes(), &kNoRuns}; }

// The bytes that process `rank` gets under `key`. Its own place is left alone.
std::vector<int> fetched(Processes& processes, std::uint64_t key, std::size_t each,
                         std::uint64_t runs = 0) {
  std::vector<std::byte> all(each * static_cast<std::size_t>(processes.size()));
  std::vector<std::span<std::byte>> parts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(processes.size()); ++r)
    parts.push_back(std::span(all).subspan(r * each, each));
  processes.fetch(key, runs, parts);
  std::vector<int> firsts;
  for (const std::span<std::byte> part : parts) firsts.push_back(static_cast<int>(part[0]));
  return firsts;
}

TEST(PartServer, AnswersWhileItsProcessDoesSomethingElse) {
  test::run_processes(3, [](const std::shared_ptr<Processes>& processes) {
    const MemoryBlock own = bytes_of(processes->rank(), 5000);
    processes->parts().publish(7, all_of(own));
    if (processes->rank() == 0) {
      EXPECT_THAT(fetched(*processes, 7, 5000), ElementsAre(0, 2, 3));
      EXPECT_THAT(fetched(*processes, 7, 5000), ElementsAre(0, 2, 3));
    }
    processes->parts().withdraw(7);
  });
}

TEST(PartServer, AnswersProcessesThatAskEachOther) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    const MemoryBlock own = bytes_of(processes->rank(), 100);
    processes->parts().publish(1, all_of(own));
    EXPECT_EQ(fetched(*processes, 1, 100)[1 - processes->rank()], 2 - processes->rank());
    processes->parts().withdraw(1);
  });
}

// A thousand processes, of which one asks.
TEST(PartServer, ListensToThoseThatAreConnected) {
  constexpr int kSize = 1'000;
  test::MemoryNetwork network(kSize);
  const auto own = network.group(0), other = network.group(7);
  PartServer server(*own, [](std::uint64_t, std::uint64_t) {
    return std::optional(std::vector<std::byte>(1, std::byte{9}));
  });
  server.serve();
  EXPECT_TRUE(own->connected().empty());
  std::byte got{};
  std::jthread asks([&] {
    std::vector<std::span<std::byte>> parts(kSize);
    parts[0] = {&got, 1};
    fetch_parts(*other, 3, 0, parts);
  });
  while (!server.has_new_peers()) own->poll();
  server.serve();
  asks.join();
  EXPECT_EQ(got, std::byte{9});
  EXPECT_THAT(own->connected(), ElementsAre(7));
  EXPECT_FALSE(server.has_new_peers());
}

TEST(PartServer, LooksLessOftenForWhatItDoesNotHaveForLong) {
  test::TwoGroups two;
  std::optional<std::vector<std::byte>> part;
  PartServer server(*two.groups[1], [&](std::uint64_t, std::uint64_t) { return part; });
  std::atomic<bool> over{false};
  std::byte got{};
  const std::jthread asks([&] {
    const std::array<std::span<std::byte>, 2> parts{std::span<std::byte>{}, std::span(&got, 1)};
    fetch_parts(*two.groups[0], 7, 0, parts);
    over = true;
  });
  Clock::time_point looked;
  const auto look = [&] {
    looked = Clock::now();
    two.groups[1]->poll();
    server.serve();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  // A machine that is busy may stop this thread for longer.
  const auto is_lately = [&] { return Clock::now() - looked < std::chrono::milliseconds(100); };
  while (!server.has_postponed()) look();
  EXPECT_TRUE(server.asked_lately() || !is_lately());
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  look();
  EXPECT_TRUE(server.has_postponed());
  EXPECT_FALSE(server.asked_lately());
  part = std::vector<std::byte>(1, std::byte{9});
  look();
  EXPECT_FALSE(server.has_postponed());
  EXPECT_TRUE(server.asked_lately() || !is_lately());  // there may be a next one
  while (!over) look();
  EXPECT_EQ(got, std::byte{9});
}

// Rank 1 publishes when rank 0 has asked already, or soon will.
TEST(PartServer, WaitsForWhatIsPublishedLater) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    if (processes->rank() == 1) {
      const MemoryBlock own = bytes_of(1, 3);
      processes->parts().publish(2, all_of(own));
      processes->parts().withdraw(2);  // and keeps a copy
    } else {
      EXPECT_THAT(fetched(*processes, 2, 3), ElementsAre(0, 2));
    }
  });
}

// Rank 0 asks for the value after a run when rank 1 has changed it, and when rank 1 is gone.
TEST(PartServer, KeepsWhatARunHasLeft) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    MemoryBlock own = bytes_of(1, 3);
    std::atomic<std::uint64_t> runs = 5;
    PublishedParts& parts = processes->parts();
    const auto change = [&](int value) {
      parts.keep(4);
      own.store(std::vector(3, std::byte(value)).data());
    };
    if (processes->rank() == 1) {
      parts.publish(4, {&own, 0, 3, &runs});
      change(8);
      change(9);
      parts.publish(4, {&own, 0, 3, &runs});
    }
    processes->gather("");
    if (processes->rank() == 0) {
      EXPECT_THAT(fetched(*processes, 4, 3, 5), ElementsAre(0, 2));
    }
    processes->gather("");
    runs = 6;
    processes->gather("");
    if (processes->rank() == 0) {
      EXPECT_THAT(fetched(*processes, 4, 3, 6), ElementsAre(0, 9));
    }
    processes->gather("");
    if (processes->rank() == 1) {
      change(10);
      parts.withdraw(4);
    } else {
      EXPECT_THAT(fetched(*processes, 4, 3, 6), ElementsAre(0, 9));
    }
  });
}

// Rank 1 answers once it has ended as many runs as rank 0.
TEST(PartServer, WaitsForTheRunThatTheOtherHasEnded) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    MemoryBlock own = bytes_of(1, 3);
    std::atomic<std::uint64_t> runs = 1;
    if (processes->rank() == 1) {
      processes->parts().publish(4, {&own, 0, 3, &runs});
      processes->gather("");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 mostly asks meanwhile
      own.store(std::vector(3, std::byte{9}).data());
      runs = 2;
      processes->gather("");
      processes->parts().withdraw(4);
    } else {
      processes->gather("");
      EXPECT_THAT(fetched(*processes, 4, 3, 2), ElementsAre(0, 9));
      processes->gather("");
    }
  });
}

TEST(PublishedParts, AreARangeOfTheirMemory) {
  MemoryBlock own(host_allocator(), 4);
  own.store(std::vector{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}.data());
  PublishedParts parts;
  parts.publish(3, {&own, 1, 2, &kNoRuns});
  EXPECT_THAT(*parts.find(3, 0), ElementsAre(std::byte{2}, std::byte{3}));
  EXPECT_FALSE(parts.find(3, 1));
}

// The answer waits for the second value: nothing is left of the first.
TEST(PartServer, ForgetsWhatIsWithdrawnOnceAllHaveGathered) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    const MemoryBlock first = bytes_of(1, 3), second = bytes_of(6, 3);
    if (processes->rank() == 1) {
      processes->parts().publish(5, all_of(first));
      processes->parts().withdraw(5);
    }
    for (int i = 0; i < 2; ++i) processes->gather("");  // the second begins where the first is over
    if (processes->rank() == 1) {
      processes->parts().publish(5, all_of(second));
      processes->parts().withdraw(5);
    } else {
      EXPECT_THAT(fetched(*processes, 5, 3), ElementsAre(0, 7));
    }
  });
}

// Memory of a GPU that has failed.
class BrokenMemory final : public MemorySource {
 public:
  bool on_host() const override { return false; }
  void* allocate(std::size_t bytes) override { return ::operator new(bytes); }
  void deallocate(void* memory) noexcept override { ::operator delete(memory); }
  void copy(void*, const void*, std::size_t) override { throw DeviceError("the GPU is lost"); }
};

TEST(PublishedParts, KeepNothingOfMemoryThatCannotBeRead) {
  BrokenMemory source;
  Allocator allocator("gpu:0", 0, &source);
  const MemoryBlock own(allocator, 8);
  PublishedParts parts;
  parts.publish(3, all_of(own));
  EXPECT_THROW(parts.find(3, 0), DeviceError);
  EXPECT_THROW(parts.withdraw(3), DeviceError);
  EXPECT_FALSE(parts.find(3, 0));
}

}  // namespace part_server_test
}  // namespace belfry
