#include "belfry/framework/run/arena_guard.h"

#if defined(__SANITIZE_ADDRESS__)
#include <map>

#include <sanitizer/asan_interface.h>

namespace belfry {

ArenaGuard::ArenaGuard(const Plan& plan, std::span<const Buffer> arenas)
    : arenas_(arenas), born_(plan.launches.size()), dead_(plan.launches.size()) {
  for (const Buffer& arena : arenas)
    if (arena.on_host()) ASAN_POISON_MEMORY_REGION(arena.data(), arena.bytes());
  for (const FeedSlots& slots : plan.feed_slots)
    ASAN_UNPOISON_MEMORY_REGION(arenas[0].data() + slots.on_host,
                                at(FeedSlots::kCount * slots.bytes));
  // Uses of a buffer on one lane are ordered, so the last of them is the end; buffers that several
  // lanes use, or one of a GPU, which is late, stay open until they are reused.
  struct Life {
    int lane;
    std::size_t last;
    bool one_lane;
  };
  std::map<int, Life> lives;
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const Launch& launch = plan.launches[l];
    const PlanNode& node = plan.node(launch.node);
    const auto use = [&](int buffer) {
      const bool on_time = plan.lanes[at(launch.lane)].gpu < 0;
      const auto [life, fresh] = lives.emplace(buffer, Life{launch.lane, l, on_time});
      if (fresh) return;
      life->second.last = l;
      life->second.one_lane = life->second.one_lane && life->second.lane == launch.lane;
    };
    for (const Value& input : node.inputs) use(plan.buffer(input));
    std::vector<int> written = plan.buffer_of[at(launch.node)];
    if (launch.workspace >= 0) written.push_back(launch.workspace);
    for (const int buffer : written) {
      use(buffer);
      const BufferRecord& record = plan.buffers[at(buffer)];
      if (record.place == Place::kArena && arenas[at(record.device)].on_host())
        born_[l].push_back({arenas[at(record.device)].data() + record.offset, at(record.bytes)});
    }
  }
  for (const auto& [buffer, life] : lives) {
    const BufferRecord& record = plan.buffers[at(buffer)];
    if (record.place == Place::kArena && life.one_lane && arenas[at(record.device)].on_host())
      dead_[life.last].push_back(
          {arenas[at(record.device)].data() + record.offset, at(record.bytes)});
  }
}

ArenaGuard::~ArenaGuard() {
  for (const Buffer& arena : arenas_)
    if (arena.on_host()) ASAN_UNPOISON_MEMORY_REGION(arena.data(), arena.bytes());
}

void ArenaGuard::before(std::size_t launch) const {
  for (const Block& block : born_[launch]) ASAN_UNPOISON_MEMORY_REGION(block.data, block.bytes);
}

void ArenaGuard::after(std::size_t launch) const {
  for (const Block& block : dead_[launch]) ASAN_POISON_MEMORY_REGION(block.data, block.bytes);
}

}  // namespace belfry

#endif
