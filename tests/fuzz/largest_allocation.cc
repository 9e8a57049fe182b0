#include "belfry/tests/fuzz/largest_allocation.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "belfry/framework/base/allocator.h"

namespace {

std::atomic<std::size_t> largest{0};

void note(std::size_t bytes) {
  if (bytes > largest.load(std::memory_order_relaxed)) largest = bytes;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  note(bytes);
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment;
  if (void* const memory = std::aligned_alloc(alignment, rounded * alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// Else AddressSanitizer's own would serve, and its memory come to our operator delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace belfry::test {

std::size_t largest_allocation() { return largest; }

void forget_allocations() {
  set_allocation_hook([](const std::string&, std::size_t bytes) { note(bytes); });
  largest = 0;
}

}  // namespace belfry::test
