// Brings feeds to the GPUs of a step. A copy stream brings them from pinned memory to the GPU while
// another step computes. There are two slots (FeedSlots), so the next feeds arrive while a run
// reads the last ones. Feeds in feed_memory() (device/gpu_memory.h) are pinned where they are: the
// slot shares their tensors until the run has ended. The feeding thread, and one more for each
// further GPU, copy other feeds into pinned memory.
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
#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/run/workers.h"

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
  // Call it between two runs. Takes over the memory of `other`, which is for another plan with the
  // same feeds. Keeps staged feeds.
  void replace(FeedStaging& other);

  // See CompiledStep::stage.
  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop);

  // Call it at the start of a run. Returns the slot of its feeds. By then all their copies are
  // enqueued. If a failure or replace() may have undone some, they are enqueued again.
  int begin(const StagedFeeds& staged);
  // Call it at the end of a run, when nothing waits for the copies of the slot any more.
  void end(int slot);

  // Whether the feed goes to a GPU, and its address there.
  bool stages(std::size_t feed) const { return feeds_[feed].staged; }
  void* address(std::size_t feed, int slot) const {
    return feeds_[feed].on_gpu + at(slot) * feeds_[feed].stride;
  }
  // The event after the copies to the i-th of fed_gpus().
  const GpuEvent& copied(int i, int slot) const { return *gpus_[at(i)].copied[at(slot)]; }

 private:
  friend class StagedFeeds;
  static constexpr int kNowhere = -1;  // no slot

  struct Feed {
    FeedType type;
    bool staged = false;
    int gpu = -1;                                    // in gpus_, if it is staged
    std::byte *pinned = nullptr, *on_gpu = nullptr;  // in slot 0
    std::size_t stride = 0;
  };
  // The feeds of a device, which one copy brings there.
  struct Part {
    const Node* node;  // for errors
    std::byte *from, *to;
    std::size_t bytes;
    std::vector<std::size_t> feeds;
  };
  struct Gpu {
    const Device* device;  // one of its devices
    GpuStream* stream;
    std::array<std::unique_ptr<GpuEvent>, FeedSlots::kCount> copied;
    std::vector<Part> parts;
  };
  struct Slot {
    bool taken = false;
    // GpuStreams::failures() when its copies were enqueued; -1: none, or they have been done.
    int enqueued = -1;
    std::vector<Tensor> shared;  // by feed: the tensor from which it is copied; empty: the slot
  };

  static std::byte* pinned(const Feed& feed, int slot) {
    return feed.pinned + at(slot) * feed.stride;
  }
  int take(std::stop_token stop);
  void give_back(int slot) noexcept;
  void fill(int slot, std::span<const Tensor> feeds);
  void enqueue(int slot);
  void enqueue(const Gpu& gpu, const Part& part, int slot);
  bool shares(std::size_t feed, int slot) const {
    return slots_[at(slot)].shared[feed].elements() > 0;
  }
  void await_copies(int slot);

  GpuStreams* streams_ = nullptr;
  // Guards feeds_ and gpus_ between stage() and replace(). Runs only read them.
  std::mutex linking_;
  std::vector<Feed> feeds_;
  std::vector<Gpu> gpus_;                // as fed_gpus()
  std::unique_ptr<WorkerPool> copiers_;  // a thread for each of them; the first is the caller
  std::mutex mutex_;                     // over `taken` and last_
  std::condition_variable_any freed_;
  std::array<Slot, FeedSlots::kCount> slots_;  // except `taken`, a slot belongs to whoever took it
  int last_ = FeedSlots::kCount - 1;           // the slot that was taken last
};

}  // namespace belfry
