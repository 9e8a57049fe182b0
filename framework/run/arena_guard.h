// Under AddressSanitizer, poisons the parts of arenas that hold no live tensor: gaps, padding, and
// tensors past their last use. It leaves slots of feeds alone. Elsewhere it costs nothing.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

#if defined(__SANITIZE_ADDRESS__)

class ArenaGuard {
 public:
  ArenaGuard(const Plan& plan, std::span<const MemoryBlock> arenas);
  ~ArenaGuard();
  ArenaGuard(const ArenaGuard&) = delete;
  ArenaGuard& operator=(const ArenaGuard&) = delete;

  void before(LaunchIndex launch, int shard = 0) const;
  void after(LaunchIndex launch, int shard = 0) const;

 private:
  struct Block {
    std::byte* data;  // of shard 0
    std::size_t bytes;
    std::int64_t slice;  // how far on that of the next shard is
  };
  std::span<const MemoryBlock> arenas_;
  Indexed<Launch, std::vector<Block>> born_, dead_;
};

#else

class ArenaGuard {
 public:
  ArenaGuard(const Plan&, std::span<const MemoryBlock>) {}
  void before(LaunchIndex, int = 0) const {}
  void after(LaunchIndex, int = 0) const {}
};

#endif

}  // namespace belfry
