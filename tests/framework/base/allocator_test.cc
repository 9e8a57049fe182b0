#include "belfry/framework/base/allocator.h"

#include <cstring>
#include <vector>

#include "belfry/framework/base/host_memory.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/initializers.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/run/session.h"
#include "belfry/tests/framework/framework_test_support.h"
#include "belfry/tests/support/sanitizers.h"

namespace belfry {
namespace allocator_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Allocator, CountsWhatIsInUseAndItsCalls) {
  Allocator allocator("here");
  {
    const MemoryBlock a(allocator, 100), b(allocator, 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0u);
    EXPECT_EQ(allocator.in_use(), 100);
    EXPECT_EQ(allocator.calls(), 2);
  }
  EXPECT_EQ(allocator.in_use(), 0);
}

TEST(Allocator, KeepsItsLimit) {
  Allocator allocator("cpu:0", 1000);
  MemoryBlock most(allocator, 900);
  EXPECT_THAT(message_of<OutOfMemory>([&] { MemoryBlock more(allocator, 101); }),
              AllOf(HasSubstr("cpu:0: cannot allocate 101 bytes"), HasSubstr("900 in use"),
                    HasSubstr("a limit of 1000")));
  const MemoryBlock rest(allocator, 100);
  most.reset();
  const MemoryBlock again(allocator, 900);
  EXPECT_EQ(allocator.in_use(), 1000);
}

TEST(Allocator, ARefusalOfTheMachineIsOutOfMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers end the program where memory is short";
  Allocator allocator("cpu:0");
  EXPECT_THAT(message_of<OutOfMemory>([&] { MemoryBlock much(allocator, std::size_t{1} << 60); }),
              HasSubstr("cannot allocate"));
  EXPECT_EQ(allocator.in_use(), 0);
}

// Large blocks lie in huge pages, as far as they fill them.
TEST(Allocator, TakesNoMoreOfTheMachineThanItGives) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  constexpr std::size_t kBytes = (std::size_t{2} << 20) + 4096, kCount = 32;
  Allocator allocator("here");
  std::vector<MemoryBlock> buffers;
  buffers.reserve(kCount);
  const std::int64_t before = resident_bytes();
  for (std::size_t i = 0; i < kCount; ++i) {
    buffers.emplace_back(allocator, kBytes);
    std::memset(buffers.back().data(), 1, kBytes);
  }
  EXPECT_LT(resident_bytes() - before, static_cast<std::int64_t>(kCount * kBytes + (8 << 20)));
}

TEST(MemoryBlock, MovesItsMemory) {
  Allocator allocator("here");
  MemoryBlock a(allocator, 64);
  std::byte* const data = a.data();
  MemoryBlock b(std::move(a));
  EXPECT_EQ(b.data(), data);
  MemoryBlock c;
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.bytes(), 64u);
  EXPECT_EQ(allocator.in_use(), 64);
}

class HookTest : public ::testing::Test {
 protected:
  ~HookTest() override { set_allocation_hook({}); }
};

TEST_F(HookTest, SeesTheOwnerAndTheBytesOfEveryAllocation) {
  std::string owner;
  std::size_t bytes = 0;
  set_allocation_hook([&](const std::string& o, std::size_t b) { owner = o, bytes = b; });
  const Tensor tensor({3}, DType::kF64);
  EXPECT_EQ(owner, "host");
  EXPECT_EQ(bytes, 24u);
}

// For every n, allocation n fails while a session is built and run. The session throws, leaks
// nothing, and works once there is memory again.
TEST_F(HookTest, ASessionSurvivesTheFailureOfAnyAllocation) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {2});
  Variable v, replica;
  {
    DeviceScope on(graph, cpu(1));
    v = variable(graph, "v", {2}, {.initializer = init::ones()});
    replica = variable(graph, "tower1/v", {2}, {.copy_of = &v.node()});
  }
  Node& write = assign_add(v, add_n({x, constant(graph, floats({1, 1}))}));
  const Output y = add_n({x, v, replica});
  const std::vector<Fetch> fetches = {y, write};
  const FeedValue feeds[] = {{x, floats({10, 20})}};
  const std::int64_t before = host_allocator().in_use();
  const Tensor expected_y = floats({12, 22}), expected_v = floats({12, 22});

  int allowed = 0;
  for (bool failed = true; failed; ++allowed) {
    failed = false;
    int left = allowed;
    Session session(graph, {.device_count = {{"CPU", 2}}, .threads = 2, .all_workers = true});
    set_allocation_hook([&](const std::string& owner, std::size_t bytes) {
      require<OutOfMemory>(left-- > 0, owner, ": no memory for ", bytes);
    });
    bool wrote = false;
    try {
      session.run(fetches, feeds);
      wrote = session.read(v) == expected_v;
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), HasSubstr("no memory for"));
      failed = true;
    }
    set_allocation_hook({});
    // A failure after the run, while results are copied, does not undo the run.
    wrote = wrote || session.read(v) == expected_v;
    EXPECT_EQ(session.read(v), wrote ? expected_v : floats({1, 1})) << allowed;
    EXPECT_EQ(session.read(replica), floats({1, 1})) << allowed;
    if (!wrote) {
      EXPECT_EQ(session.run(fetches, feeds)[0], expected_y) << allowed;
      EXPECT_EQ(session.read(v), expected_v) << allowed;
    }
  }
  EXPECT_GT(allowed, 8);
  EXPECT_EQ(host_allocator().in_use(), before + 16);  // expected_y and expected_v remain
}

TEST_F(HookTest, ASessionReturnsAllItsMemory) {
  Graph graph;
  const Variable v = variable(graph, "v", {1000});
  const Output y = add_n({v, v});
  const std::int64_t before = host_allocator().in_use();
  {
    Session session(graph);
    session.run(y);
    EXPECT_GT(host_allocator().in_use(), before);
  }
  EXPECT_EQ(host_allocator().in_use(), before);
}

}  // namespace allocator_test
}  // namespace belfry
