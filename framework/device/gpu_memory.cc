#include "belfry/framework/device/gpu_memory.h"

#include <map>
#include <mutex>
#include <optional>

namespace belfry {
namespace {

// Memory of a GPU, or pinned host memory if `gpu` is none.
class BackendMemory : public MemorySource {
 public:
  BackendMemory(const GpuBackend& backend, std::optional<int> gpu) : backend_(backend), gpu_(gpu) {}

  bool on_host() const override { return !gpu_; }
  void* allocate(std::size_t bytes) override {
    return gpu_ ? backend_.allocate(*gpu_, bytes) : backend_.allocate_pinned(bytes);
  }
  void deallocate(void* memory) noexcept override {
    gpu_ ? backend_.deallocate(*gpu_, memory) : backend_.deallocate_pinned(memory);
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    backend_.copy(to, from, bytes);
  }

 private:
  const GpuBackend& backend_;
  std::optional<int> gpu_;
};

// The memory of feeds that is in use, and whose it is.
struct FeedMemory {
  std::mutex mutex;
  std::map<const void*, const GpuBackend*> blocks;
};

FeedMemory& all_feed_memory() {
  static FeedMemory& instance = *new FeedMemory;  // tensors may outlive it otherwise
  return instance;
}

class FeedSource final : public BackendMemory {
 public:
  explicit FeedSource(const GpuBackend& backend)
      : BackendMemory(backend, std::nullopt), backend_(backend) {}

  void* allocate(std::size_t bytes) override {
    void* const memory = BackendMemory::allocate(bytes);
    const std::lock_guard lock(all_feed_memory().mutex);
    if (memory) all_feed_memory().blocks[memory] = &backend_;
    return memory;
  }
  void deallocate(void* memory) noexcept override {
    {
      const std::lock_guard lock(all_feed_memory().mutex);
      all_feed_memory().blocks.erase(memory);
    }
    BackendMemory::deallocate(memory);
  }

 private:
  const GpuBackend& backend_;
};

struct FeedAllocator {
  explicit FeedAllocator(const GpuBackend& backend) : source(backend) {}
  FeedSource source;
  Allocator allocator{"pinned memory of feeds", 0, &source};
};

}  // namespace

std::unique_ptr<MemorySource> gpu_memory(const GpuBackend& backend, int gpu) {
  return std::make_unique<BackendMemory>(backend, gpu);
}

std::unique_ptr<MemorySource> pinned_memory(const GpuBackend& backend) {
  return std::make_unique<BackendMemory>(backend, std::nullopt);
}

std::shared_ptr<Allocator> feed_memory(const GpuBackend& backend) {
  const auto whole = std::make_shared<FeedAllocator>(backend);
  return {whole, &whole->allocator};
}

bool is_feed_memory(const GpuBackend& backend, const void* memory) {
  const std::lock_guard lock(all_feed_memory().mutex);
  const auto found = all_feed_memory().blocks.find(memory);
  return found != all_feed_memory().blocks.end() && found->second == &backend;
}

}  // namespace belfry
