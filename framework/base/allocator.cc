#include "belfry/framework/base/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/keep_memory.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// The size of cache lines and of AVX-512 vectors.
constexpr std::size_t kAlignment = 64;

void* allocate_aligned(std::size_t bytes) {
  // Arenas and large variables are in huge pages, which cause fewer TLB misses. Smaller blocks are
  // in small pages, because the first touch takes a whole huge page.
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const std::size_t lines = std::max<std::size_t>(1, (bytes + kAlignment - 1) / kAlignment);
  void* memory = nullptr;  // std::aligned_alloc takes only multiples of the alignment
  if (::posix_memalign(&memory, alignment, lines * kAlignment) != 0) return nullptr;
  if (alignment == kHugePage) ::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

AllocationHook& hook() {
  static AllocationHook instance;
  return instance;
}

// Whether host memory is never freed.
std::atomic<bool>& host_memory_is_kept() {
  static std::atomic<bool> instance{false};
  return instance;
}

}  // namespace

void keep_host_memory() noexcept { host_memory_is_kept() = true; }

void set_allocation_hook(AllocationHook wanted) { hook() = std::move(wanted); }

Allocator::Allocator(std::string owner, std::int64_t limit, MemorySource* source)
    : owner_(std::move(owner)), limit_(limit), source_(source) {}

void* Allocator::take(std::size_t bytes) const {
  if (!source_) return allocate_aligned(bytes);
  return source_->allocate(std::max<std::size_t>(1, bytes));
}

void* Allocator::allocate(std::size_t bytes) {
  if (hook()) hook()(owner_, bytes);
  calls_.fetch_add(1, std::memory_order_relaxed);
  const auto size = static_cast<std::int64_t>(bytes);
  const std::int64_t before = in_use_.fetch_add(size, std::memory_order_relaxed);
  const bool fits = limit_ == 0 || before + size <= limit_;
  void* memory = nullptr;
  try {
    if (fits) memory = take(bytes);
  } catch (...) {
    in_use_.fetch_sub(size, std::memory_order_relaxed);
    throw;
  }
  if (memory) return memory;
  in_use_.fetch_sub(size, std::memory_order_relaxed);
  throw OutOfMemory(cat(owner_, ": cannot allocate ", bytes, " bytes with ", before, " in use",
                        limit_ ? cat(" and a limit of ", limit_) : std::string(),
                        limit_ ? "; use a smaller batch or more devices"
                               : "; use a smaller batch, fewer devices or shards, or less data, or "
                                 "allow this process more memory (ulimit -v)"));
}

void Allocator::deallocate(void* memory, std::size_t bytes) noexcept {
  if (!memory) return;
  if (on_host() && host_memory_is_kept().load(std::memory_order_relaxed)) return;
  if (source_)
    source_->deallocate(memory);
  else
    std::free(memory);
  in_use_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

void Allocator::copy(void* to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return;
  if (source_)
    source_->copy(to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

Allocator& host_allocator() {
  // Never destroyed: tensors with static lifetime may outlive it otherwise.
  static Allocator& instance = *new Allocator("host");
  return instance;
}

MemoryBlock::MemoryBlock(Allocator& allocator, std::size_t bytes)
    : allocator_(&allocator),
      data_(static_cast<std::byte*>(allocator.allocate(bytes))),
      bytes_(bytes) {}

void MemoryBlock::load(std::byte* to, std::size_t first, std::size_t count) const {
  if (allocator_) allocator_->copy(to, data_ + first, count);
}

void MemoryBlock::store(const std::byte* from, std::size_t first, std::size_t count) const {
  if (allocator_) allocator_->copy(data_ + first, from, count);
}

void MemoryBlock::reset() noexcept {
  if (allocator_) allocator_->deallocate(data_, bytes_);
  allocator_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

void MemoryBlock::swap(MemoryBlock& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace belfry
