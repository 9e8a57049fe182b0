// Under AddressSanitizer, poisons during a run the parts of arenas that hold no live tensor: gaps,
// padding, and tensors past their last use. Elsewhere it costs nothing.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

#if defined(__SANITIZE_ADDRESS__)

class ArenaGuard {
 public:
  // `arenas`: the beginning of each device's arena, now and in each run.
  ArenaGuard(const Plan& plan, const std::vector<std::unique_ptr<Device>>& devices,
             std::span<std::byte* const> arenas);

  // While it lives, the arenas are poisoned except for the blocks that before() opens.
  class Run {
   public:
    explicit Run(const ArenaGuard& guard);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    const ArenaGuard& guard_;
  };

  void before(LaunchIndex launch, int shard = 0) const;
  void after(LaunchIndex launch, int shard = 0) const;

 private:
  struct Block {
    int device;
    std::int64_t offset;  // in its arena, for shard 0
    std::size_t bytes;
    std::int64_t slice;  // from a shard's block to that of the next shard
  };
  std::byte* begin_of(const Block& block, int shard) const;

  const Plan& plan_;
  std::span<std::byte* const> arenas_;
  std::vector<bool> on_host_;  // per device
  Indexed<Launch, std::vector<Block>> born_, dead_;
};

#else

class ArenaGuard {
 public:
  ArenaGuard(const Plan&, const std::vector<std::unique_ptr<Device>>&,
             std::span<std::byte* const>) {}
  struct Run {
    explicit Run(const ArenaGuard&) {}
    ~Run() {}  // so that compilers do not call it unused
  };
  void before(LaunchIndex, int = 0) const {}
  void after(LaunchIndex, int = 0) const {}
};

#endif

}  // namespace belfry
