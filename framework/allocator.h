// Memory of devices. Every byte that Belfry holds for tensors, variables and arenas comes through
// an Allocator, so that limits are kept, leaks are counted and failures can be injected in one
// place.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace belfry {

// Called before every allocation with the owner's name and the bytes asked for. May throw, which
// the caller of allocate() sees: this is where tests inject failures. An empty hook removes it.
// Install while nothing allocates.
using AllocationHook = std::function<void(const std::string& owner, std::size_t bytes)>;
void set_allocation_hook(AllocationHook hook);

class Allocator {
 public:
  // `owner` names the device in errors. limit in bytes, 0 for none.
  explicit Allocator(std::string owner, std::int64_t limit = 0);

  // Memory aligned to 64 bytes, uninitialised. Throws OutOfMemory naming the owner, the request,
  // the limit and what is in use.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;

  std::int64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  std::int64_t limit() const { return limit_; }
  // Calls of allocate() so far. A steady training step leaves it alone.
  std::int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  std::string owner_;
  std::int64_t limit_;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> calls_{0};
};

// Memory of tensors that belong to no device: feeds, fetches, constants.
Allocator& host_allocator();

// A block of an allocator, freed with its owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Allocator& allocator, std::size_t bytes);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void reset() noexcept;

 private:
  void swap(Buffer& other) noexcept;

  Allocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace belfry
