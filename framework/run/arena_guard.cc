#include "belfry/framework/run/arena_guard.h"

#if defined(__SANITIZE_ADDRESS__)
#include <map>

#include <sanitizer/asan_interface.h>

namespace belfry {

ArenaGuard::ArenaGuard(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
                       std::span<std::byte* const> arenas)
    : plan_(plan), arenas_(arenas), born_(plan.launches.size()), dead_(plan.launches.size()) {
  for (const auto& device : devices) on_host_.push_back(device->memory.on_host());
  // Uses of a buffer on one strand are ordered, so the buffer dies after the last of them. Other
  // buffers stay open until they are reused: those that several strands use, and those of a GPU,
  // which lags the host.
  struct Life {
    StrandIndex strand;
    LaunchIndex last;
    bool one_strand;
  };
  std::map<BufferIndex, Life> lives;
  const auto block = [&](BufferIndex buffer) {
    const BufferRecord& record = plan.buffers[buffer];
    return Block{record.device, plan.offset(record, 0), at(record.bytes),
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
      if (record.kind == BufferKind::kArena && on_host_[at(record.device)])
        born_[l].push_back(block(buffer));
    }
  }
  for (const auto& [buffer, life] : lives) {
    const BufferRecord& record = plan.buffers[buffer];
    if (record.kind == BufferKind::kArena && life.one_strand && on_host_[at(record.device)])
      dead_[life.last].push_back(block(buffer));
  }
}

ArenaGuard::Run::Run(const ArenaGuard& guard) : guard_(guard) {
  for (std::size_t d = 0; d < guard.on_host_.size(); ++d)
    if (guard.on_host_[d])
      ASAN_POISON_MEMORY_REGION(guard.arenas_[d], at(guard.plan_.arena_bytes[d]));
}

ArenaGuard::Run::~Run() {
  for (std::size_t d = 0; d < guard_.on_host_.size(); ++d)
    if (guard_.on_host_[d])
      ASAN_UNPOISON_MEMORY_REGION(guard_.arenas_[d], at(guard_.plan_.arena_bytes[d]));
}

std::byte* ArenaGuard::begin_of(const Block& block, int shard) const {
  return arenas_[at(block.device)] + block.offset + shard * block.slice;
}

void ArenaGuard::before(LaunchIndex launch, int shard) const {
  for (const Block& block : born_[launch])
    ASAN_UNPOISON_MEMORY_REGION(begin_of(block, shard), block.bytes);
}

void ArenaGuard::after(LaunchIndex launch, int shard) const {
  for (const Block& block : dead_[launch])
    ASAN_POISON_MEMORY_REGION(begin_of(block, shard), block.bytes);
}

}  // namespace belfry

#endif
