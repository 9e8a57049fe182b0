#include "belfry/framework/device/gpu_memory.h"

#include <optional>

namespace belfry {
namespace {

// Memory of a GPU, or pinned host memory if `gpu` is none.
class BackendMemory final : public MemorySource {
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

}  // namespace

std::unique_ptr<MemorySource> gpu_memory(const GpuBackend& backend, int gpu) {
  return std::make_unique<BackendMemory>(backend, gpu);
}

std::unique_ptr<MemorySource> pinned_memory(const GpuBackend& backend) {
  return std::make_unique<BackendMemory>(backend, std::nullopt);
}

}  // namespace belfry
