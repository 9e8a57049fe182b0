#include "belfry/framework/gpu_memory.h"

namespace belfry {
namespace {

class GpuMemory final : public MemorySource {
 public:
  GpuMemory(const GpuBackend& backend, int gpu) : backend_(backend), gpu_(gpu) {}

  bool on_host() const override { return false; }
  void* allocate(std::size_t bytes) override { return backend_.allocate(gpu_, bytes); }
  void deallocate(void* memory) noexcept override { backend_.deallocate(gpu_, memory); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    backend_.copy(to, from, bytes);
  }

 private:
  const GpuBackend& backend_;
  int gpu_;
};

class PinnedMemory final : public MemorySource {
 public:
  explicit PinnedMemory(const GpuBackend& backend) : backend_(backend) {}

  bool on_host() const override { return true; }
  void* allocate(std::size_t bytes) override { return backend_.allocate_pinned(bytes); }
  void deallocate(void* memory) noexcept override { backend_.deallocate_pinned(memory); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    backend_.copy(to, from, bytes);
  }

 private:
  const GpuBackend& backend_;
};

}  // namespace

std::unique_ptr<MemorySource> gpu_memory(const GpuBackend& backend, int gpu) {
  return std::make_unique<GpuMemory>(backend, gpu);
}

std::unique_ptr<MemorySource> pinned_memory(const GpuBackend& backend) {
  return std::make_unique<PinnedMemory>(backend);
}

}  // namespace belfry
