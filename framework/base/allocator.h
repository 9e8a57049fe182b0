// Memory of devices. Every byte that Belfry holds for tensors, variables and arenas comes from an
// Allocator. That is the one place to enforce limits, count leaks and inject failures.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace belfry {

// Called before every allocation with the owner's name and the requested bytes. What it throws
// reaches the caller of allocate(), so tests can inject failures. An empty hook removes it. Install
// it while nothing allocates.
using AllocationHook = std::function<void(const std::string& owner, std::size_t bytes)>;
void set_allocation_hook(AllocationHook hook);

// Where an Allocator gets its memory, if not from the heap.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Whether the host reads and writes it.
  virtual bool on_host() const = 0;
  // Returns memory aligned to 64 bytes, or null if there is too little. `bytes` is not 0.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) noexcept = 0;
  // Copies between memory of this source, the host and other sources of the same session.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
};

class Allocator {
 public:
  // `owner` names the device in errors. limit in bytes, 0 for none. The source, null for the heap,
  // must outlive this.
  explicit Allocator(std::string owner, std::int64_t limit = 0, MemorySource* source = nullptr);

  // Memory aligned to 64 bytes, uninitialised. Throws OutOfMemory naming the owner, the request,
  // the limit and what is in use.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;

  bool on_host() const { return !source_ || source_->on_host(); }
  // Copies to or from memory of this allocator; the other end is the host's or another device's.
  void copy(void* to, const void* from, std::size_t bytes) const;

  std::int64_t in_use() const { return in_use_.load(std::memory_order_relaxed); }
  std::int64_t limit() const { return limit_; }
  // Calls of allocate() so far. A steady training step makes none.
  std::int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  void* take(std::size_t bytes) const;

  std::string owner_;
  std::int64_t limit_;
  MemorySource* source_;
  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> calls_{0};
};

// Memory of tensors that belong to no device: feeds, fetches, constants.
Allocator& host_allocator();

// A block of an allocator, freed with its owner.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  MemoryBlock(Allocator& allocator, std::size_t bytes);
  ~MemoryBlock() { reset(); }
  MemoryBlock(MemoryBlock&& other) noexcept { swap(other); }
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool on_host() const { return !allocator_ || allocator_->on_host(); }
  // Copies the whole block, to or from memory of the host or of another device.
  void load(std::byte* to) const { load(to, 0, bytes_); }
  void store(const std::byte* from) const { store(from, 0, bytes_); }
  // Copies `count` bytes, starting at `first`.
  void load(std::byte* to, std::size_t first, std::size_t count) const;
  void store(const std::byte* from, std::size_t first, std::size_t count) const;
  void reset() noexcept;

 private:
  void swap(MemoryBlock& other) noexcept;

  Allocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace belfry
