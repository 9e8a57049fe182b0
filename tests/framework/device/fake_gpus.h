// GPUs that are not there, and do nothing.
#pragma once
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry::test {

class FakeGpus : public GpuBackend {
 public:
  explicit FakeGpus(int count, std::string why_none = "") : count_(count), why_(why_none) {}

  int count() const override { return count_; }
  std::string why_none() const override { return why_; }
  GpuInfo info(int gpu) const override {
    require(gpu >= 0 && gpu < count_, "no GPU ", gpu);
    return {.name = "Fake",
            .memory_bytes = 1 << 30,
            .major = 9,
            .minor = 0,
            .pci_bus_id = cat("0000:0", gpu, ":00.0")};
  }
  std::string uuid(int gpu) const override { return "GPU-" + std::to_string(gpu); }
  std::string refusal(int) const override { return ""; }
  bool peer_access(int from, int to) const override { return from != to; }
  GpuVersions versions() const override { return {}; }
  NcclInfo nccl() const override { return {.why_not = "there is no NCCL in this test"}; }
  void* allocate(int, std::size_t) const override { return nullptr; }
  void deallocate(int, void*) const noexcept override {}
  void* allocate_pinned(std::size_t) const override { return nullptr; }
  void deallocate_pinned(void*) const noexcept override {}
  void copy(void*, const void*, std::size_t) const override {}
  std::unique_ptr<GpuStream> make_stream(int, std::span<const int>, bool) const override {
    return nullptr;
  }
  std::unique_ptr<GpuEvent> make_event(int) const override { return nullptr; }
  std::unique_ptr<GpuEvent> make_timer(int) const override { return nullptr; }
  std::chrono::nanoseconds elapsed(const GpuEvent&, const GpuEvent&) const override { return {}; }
  void use(int) const override {}
  std::string communicator_id() const override { return ""; }
  std::unique_ptr<GpuCommunicators> make_communicators(std::span<const int>,
                                                       std::chrono::duration<double>,
                                                       const RankWorld&,
                                                       const std::atomic<bool>&) const override {
    return nullptr;
  }
  GpuRun prepare(int, KernelPlan&, bool, std::span<const std::int64_t>) const override {
    return {};
  }
  bool takes_pitches(const Op&) const override { return false; }
  std::string algorithms(bool) const override { return ""; }
  void give_algorithms(bool, std::string_view, const std::string&) const override {}
  GpuRun prepare_fused(int, const PlanGraph&, const PlanNode&) const override { return {}; }

 private:
  int count_;
  std::string why_;
};

}  // namespace belfry::test
