// How feeds get to the GPUs of a step. The thread that has them copies them into pinned memory. A
// copy stream brings them to the GPU while another step computes. There are two slots (FeedSlots),
// so that the next feeds come while a run reads the last ones.
#pragma once
#include <array>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <vector>

#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/plan/plan.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// Throws InvalidArgument naming the feed unless the value is of its type.
void check_feed(const FeedType& feed, const Tensor& value);

class FeedStaging {
 public:
  FeedStaging() = default;
  // Waits for copies that no run has waited for.
  ~FeedStaging();
  FeedStaging(const FeedStaging&) = delete;
  FeedStaging& operator=(const FeedStaging&) = delete;

  // Links to a plan with its kept memory.
  void link(const LinkedPlan& linked, const Runtime& runtime);
  // Between two runs: takes over the memory of `other`, of another plan for the same feeds, and
  // keeps what is staged.
  void replace(FeedStaging& other);

  // As CompiledStep::stage.
  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop);

  // At the start of a run: returns the slot of its feeds. All their copies have been enqueued by
  // then; those that a failure or replace() may have undone are enqueued again.
  int begin(const StagedFeeds& staged);
  // At the end of a run: nothing waits for the copies of the slot any more.
  void end(int slot);

  // Whether the feed goes to a GPU; and where it is there.
  bool stages(std::size_t feed) const { return feeds_[feed].staged; }
  void* address(std::size_t feed, int slot) const {
    return feeds_[feed].on_gpu + at(slot) * feeds_[feed].stride;
  }
  // The event after the copies to the i-th of fed_gpus().
  const GpuEvent& copied(int i, int slot) const { return *gpus_[at(i)].copied[at(slot)]; }

 private:
  friend class StagedFeeds;
  static constexpr int kNowhere = -1;  // as a slot: none

  struct Feed {
    FeedType type;
    bool staged = false;
    std::byte *pinned = nullptr, *on_gpu = nullptr;  // in slot 0
    std::size_t stride = 0;
  };
  // Of a device: one copy brings all its feeds.
  struct Part {
    const Node* node;  // for errors
    std::byte *from, *to;
    std::size_t bytes;
  };
  struct Gpu {
    const Device* device;  // one of its
    GpuStream* stream;
    std::array<std::unique_ptr<GpuEvent>, FeedSlots::kCount> copied;
    std::vector<Part> parts;
  };
  struct Slot {
    bool taken = false;
    // GpuStreams::failures() when its copies were enqueued; -1: none, or they have been done.
    int enqueued = -1;
  };

  static std::byte* pinned(const Feed& feed, int slot) {
    return feed.pinned + at(slot) * feed.stride;
  }
  int take(std::stop_token stop);
  void give_back(int slot) noexcept;
  void fill(int slot, std::span<const Tensor> feeds);
  void enqueue(int slot);
  void await_copies(int slot);

  GpuStreams* streams_ = nullptr;
  std::mutex linking_;  // over the next two, between stage() and replace(); runs only read them
  std::vector<Feed> feeds_;
  std::vector<Gpu> gpus_;  // as fed_gpus()
  std::mutex mutex_;       // over `taken` and last_
  std::condition_variable_any freed_;
  std::array<Slot, FeedSlots::kCount> slots_;  // the rest is their owner's
  int last_ = FeedSlots::kCount - 1;           // that was taken
};

}  // namespace belfry
