#include "belfry/framework/run/arena_guard.h"

#if defined(__SANITIZE_ADDRESS__)
#include <map>

#include <sanitizer/asan_interface.h>

namespace belfry {

ArenaGuard::ArenaGuard(const Plan& plan, std::span<const MemoryBlock> arenas)
    : arenas_(arenas), born_(plan.launches.size()), dead_(plan.launches.size()) {
  for (const MemoryBlock& arena : arenas)
    if (arena.on_host()) ASAN_POISON_MEMORY_REGION(arena.data(), arena.bytes());
  for (const FeedSlots& slots : plan.feed_slots)
    ASAN_UNPOISON_MEMORY_REGION(arenas[0].data() + slots.on_host,
                                at(FeedSlots::kCount * slots.bytes));
  // Uses of a buffer on one strand are ordered, so the last of them is the end; buffers that
  // several strands use, or one of a GPU, which works behind the host, stay open until they are
  // reused.
  struct Life {
    StrandIndex strand;
    LaunchIndex last;
    bool one_strand;
  };
  std::map<BufferIndex, Life> lives;
  const auto block = [&](BufferIndex buffer) {
    const BufferRecord& record = plan.buffers[buffer];
    return Block{arenas[at(record.device)].data() + plan.offset(record, 0), at(record.bytes),
                 record.sliced ? plan.slices[at(record.device)].bytes : 0};
  };
  for (const LaunchIndex l : plan.launches.indices()) {
    const Launch& launch = plan.launches[l];
    const PlanNode& node = plan.node(launch.node);
    const auto use = [&](BufferIndex buffer) {
      const bool on_time = !plan.on_gpu(launch.strand);
      const auto [life, fresh] = lives.emplace(buffer, Life{launch.strand, l, on_time});
      if (fresh) return;
      life->second.last = l;
      life->second.one_strand = life->second.one_strand && life->second.strand == launch.strand;
    };
    for (const Value& input : node.inputs) use(plan.buffer(input));
    std::vector<BufferIndex> written = plan.buffer_of[launch.node];
    if (plan.workspaces[l]) written.push_back(plan.workspaces[l]);
    for (const BufferIndex buffer : written) {
      use(buffer);
      const BufferRecord& record = plan.buffers[buffer];
      if (record.kind == BufferKind::kArena && arenas[at(record.device)].on_host())
        born_[l].push_back(block(buffer));
    }
  }
  for (const auto& [buffer, life] : lives) {
    const BufferRecord& record = plan.buffers[buffer];
    if (record.kind == BufferKind::kArena && life.one_strand && arenas[at(record.device)].on_host())
      dead_[life.last].push_back(block(buffer));
  }
}

ArenaGuard::~ArenaGuard() {
  for (const MemoryBlock& arena : arenas_)
    if (arena.on_host()) ASAN_UNPOISON_MEMORY_REGION(arena.data(), arena.bytes());
}

void ArenaGuard::before(LaunchIndex launch, int shard) const {
  for (const Block& block : born_[launch])
    ASAN_UNPOISON_MEMORY_REGION(block.data + shard * block.slice, block.bytes);
}

void ArenaGuard::after(LaunchIndex launch, int shard) const {
  for (const Block& block : dead_[launch])
    ASAN_POISON_MEMORY_REGION(block.data + shard * block.slice, block.bytes);
}

}  // namespace belfry

#endif
