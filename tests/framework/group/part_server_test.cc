#include "belfry/framework/group/part_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace part_server_test {

using ::testing::ElementsAre;

MemoryBlock bytes_of(int rank, std::size_t count) {
  MemoryBlock block(host_allocator(), count);
  block.store(std::vector<std::byte>(count, static_cast<std::byte>(rank + 1)).data());
  return block;
}

// What process `rank` gets under `key`: its own place is left alone.
std::vector<int> fetched(Processes& processes, std::uint64_t key, std::size_t each) {
  std::vector<std::byte> all(each * static_cast<std::size_t>(processes.size()));
  std::vector<std::span<std::byte>> parts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(processes.size()); ++r)
    parts.push_back(std::span(all).subspan(r * each, each));
  processes.fetch(key, parts);
  std::vector<int> firsts;
  for (const std::span<std::byte> part : parts) firsts.push_back(static_cast<int>(part[0]));
  return firsts;
}

TEST(PartServer, AnswersWhileItsProcessDoesSomethingElse) {
  test::run_processes(3, [](const std::shared_ptr<Processes>& processes) {
    const MemoryBlock own = bytes_of(processes->rank(), 5000);
    processes->parts().publish(7, own);
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
    processes->parts().publish(1, own);
    EXPECT_EQ(fetched(*processes, 1, 100)[1 - processes->rank()], 2 - processes->rank());
    processes->parts().withdraw(1);
  });
}

// Rank 1 publishes when rank 0 has asked already, or soon will.
TEST(PartServer, WaitsForWhatIsPublishedLater) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    if (processes->rank() == 1) {
      const MemoryBlock own = bytes_of(1, 3);
      processes->parts().publish(2, own);
      processes->parts().withdraw(2);  // and keeps a copy
    } else {
      EXPECT_THAT(fetched(*processes, 2, 3), ElementsAre(0, 2));
    }
  });
}

// The answer waits for the second value: of the first nothing is left.
TEST(PartServer, ForgetsWhatIsWithdrawnOnceAllHaveGathered) {
  test::run_processes(2, [](const std::shared_ptr<Processes>& processes) {
    const MemoryBlock first = bytes_of(1, 3), second = bytes_of(6, 3);
    if (processes->rank() == 1) {
      processes->parts().publish(5, first);
      processes->parts().withdraw(5);
    }
    for (int i = 0; i < 2; ++i) processes->gather("");  // the second begins where the first is over
    if (processes->rank() == 1) {
      processes->parts().publish(5, second);
      processes->parts().withdraw(5);
    } else {
      EXPECT_THAT(fetched(*processes, 5, 3), ElementsAre(0, 7));
    }
  });
}

// Of a GPU that has failed.
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
  parts.publish(3, own);
  EXPECT_THROW(parts.find(3), DeviceError);
  EXPECT_THROW(parts.withdraw(3), DeviceError);
  EXPECT_FALSE(parts.find(3));
}

}  // namespace part_server_test
}  // namespace belfry
