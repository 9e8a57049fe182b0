#include "belfry/framework/run/arena_guard.h"

#include <optional>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

namespace belfry {
namespace arena_guard_test {

// A chain of sums on one strand: each tensor dies when the next one exists.
TEST(ArenaGuard, OpensTensorsWhileTheyLiveAndClosesGapsAndDeadOnes) {
  Graph graph;
  const Output a = fill(graph, {10}, 1);  // 40 bytes of a block of 64
  const Output b = add_n({a, a});
  const Output c = add_n({b, b});
  Session session(graph);
  const Plan& plan = *session.prepare({c}).plan();
  const std::vector<std::unique_ptr<Device>> devices = make_devices({});
  const MemoryBlock block(host_allocator(), static_cast<std::size_t>(plan.arena_bytes[0]));
  std::byte* const arena = block.data();
  const ArenaGuard guard(plan, devices, {&arena, 1});
  const auto open = [&](std::int64_t at) { return !__asan_address_is_poisoned(arena + at); };
  for (std::int64_t i = 0; i < plan.arena_bytes[0]; ++i) ASSERT_TRUE(open(i)) << "no run";
  std::optional<ArenaGuard::Run> run(guard);
  for (std::int64_t i = 0; i < plan.arena_bytes[0]; ++i) ASSERT_FALSE(open(i));

  std::vector<int> last_use(plan.buffers.size(), -1);
  for (std::size_t l = 0; l < plan.launches.size(); ++l)
    for (const Value& input : plan.node(plan.launches[l].node).inputs)
      last_use[static_cast<std::size_t>(plan.buffer(input).value())] = static_cast<int>(l);
  int closed = 0;
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    guard.before(LaunchIndex(l));
    for (const BufferIndex tensor : plan.buffer_of[plan.launches[l].node]) {
      const BufferRecord& record = plan.buffers[tensor];
      if (record.kind != BufferKind::kArena) continue;
      EXPECT_TRUE(open(record.offset));
      EXPECT_TRUE(open(record.offset + 39));
      EXPECT_FALSE(open(record.offset + 40));
    }
    guard.after(LaunchIndex(l));
    for (std::size_t at = 0; at < plan.buffers.size(); ++at)
      if (plan.buffers[at].kind == BufferKind::kArena && last_use[at] == static_cast<int>(l)) {
        EXPECT_FALSE(open(plan.buffers[at].offset));
        ++closed;
      }
  }
  EXPECT_GT(closed, 0);
  run.reset();
  for (std::int64_t i = 0; i < plan.arena_bytes[0]; ++i) ASSERT_TRUE(open(i));
}

}  // namespace arena_guard_test
}  // namespace belfry
#endif
