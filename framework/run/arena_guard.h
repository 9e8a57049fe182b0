// Under AddressSanitizer, keeps the parts of arenas that hold no live tensor poisoned: gaps,
// paddings and tensors past their last use; slots of feeds apart. Elsewhere it costs nothing.
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
  ArenaGuard(const Plan& plan, std::span<const Buffer> arenas);
  ~ArenaGuard();
  ArenaGuard(const ArenaGuard&) = delete;
  ArenaGuard& operator=(const ArenaGuard&) = delete;

  void before(std::size_t launch) const;
  void after(std::size_t launch) const;

 private:
  struct Block {
    std::byte* data;
    std::size_t bytes;
  };
  std::span<const Buffer> arenas_;
  std::vector<std::vector<Block>> born_, dead_;  // by launch
};

#else

class ArenaGuard {
 public:
  ArenaGuard(const Plan&, std::span<const Buffer>) {}
  void before(std::size_t) const {}
  void after(std::size_t) const {}
};

#endif

}  // namespace belfry
