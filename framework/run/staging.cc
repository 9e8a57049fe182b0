#include "belfry/framework/run/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "belfry/framework/base/profiler_range.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/device/gpu_memory.h"

namespace belfry {

namespace {

const Node* first_fed(const Plan& plan, const FeedSlots& slots) {
  return &plan.feeds[at(plan.buffers[slots.buffers[0]].index)].where.node();
}

std::size_t bytes_of(const FeedType& feed) {
  return at(feed.shape.elements()) * size_of(feed.where.dtype());
}

const Tensor& no_tensor() {
  static const Tensor instance;
  return instance;
}

}  // namespace

void check_feed(const FeedType& feed, const Tensor& value) {
  // The text is composed only if it is needed, because a step allocates nothing.
  if (value.shape() != feed.shape || value.dtype() != feed.where.dtype())
    throw InvalidArgument(cat(feed.where.node().describe(), ": fed with ", name_of(value.dtype()),
                              value.shape(), ", but the step was prepared for ",
                              name_of(feed.where.dtype()), feed.shape));
}

StagedFeeds& StagedFeeds::operator=(StagedFeeds&& other) noexcept {
  if (this == &other) return *this;
  reset();
  staging_ = std::exchange(other.staging_, nullptr);
  slot_ = other.slot_;
  return *this;
}

void StagedFeeds::reset() noexcept {
  if (staging_) staging_->give_back(slot_);
  staging_ = nullptr;
}

FeedStaging::~FeedStaging() {
  for (int slot = 0; slot < FeedSlots::kCount; ++slot) await_copies(slot);
}

void FeedStaging::link(const LinkedPlan& linked, const Runtime& runtime) {
  const Plan& plan = *linked.plan;
  streams_ = runtime.gpus.get();
  for (const FeedType& type : plan.feeds) feeds_.push_back({.type = type});
  for (Slot& slot : slots_) slot.shared.resize(feeds_.size(), no_tensor());
  for (const int gpu : fed_gpus(plan)) {
    const int first = std::ranges::find(plan.feed_slots, gpu, &FeedSlots::gpu)->device;
    const Device& device = *runtime.devices[at(first)];
    gpus_.push_back({.device = &device, .stream = &streams_->copies(first)});
    for (std::unique_ptr<GpuEvent>& event : gpus_.back().copied)
      event = device.backend->make_event(gpu);
  }
  if (const int gpus = static_cast<int>(gpus_.size()); gpus > 0)
    copiers_ = std::make_unique<WorkerPool>(1, gpus - 1);
  for (const FeedSlots& slots : plan.feed_slots) {
    const auto gpu =
        std::ranges::find(gpus_, slots.gpu, [](const Gpu& g) { return g.device->gpu; });
    const std::size_t stride = at(slots.bytes);
    std::byte* const from = linked.kept[0].data() + slots.on_host;
    std::byte* const to = linked.kept[at(slots.device)].data() + slots.offset;
    gpu->parts.push_back({first_fed(plan, slots), from, to, stride, {}});
    Part& part = gpu->parts.back();
    for (const BufferIndex buffer : slots.buffers) {
      const BufferRecord& record = plan.buffers[buffer];
      const std::int64_t offset = record.offset - slots.offset;
      Feed& feed = feeds_[at(record.index)];
      feed.staged = true;
      feed.gpu = static_cast<int>(gpu - gpus_.begin());
      feed.pinned = from + offset;
      feed.on_gpu = to + offset;
      feed.stride = stride;
      part.feeds.push_back(at(record.index));
    }
  }
}

// Staged feeds are in pinned memory.
void FeedStaging::replace(FeedStaging& other) {
  const std::lock_guard lock(linking_);
  for (int slot = 0; slot < FeedSlots::kCount; ++slot) {
    await_copies(slot);
    for (std::size_t i = 0; i < feeds_.size(); ++i) {
      const Feed &from = feeds_[i], &to = other.feeds_[i];
      require<InternalError>(from.staged || !to.staged, to.type.where.node().describe(),
                             ": has come to a GPU with another plan of the same step");
      if (to.staged && !shares(i, slot) && bytes_of(from.type) > 0)
        std::memcpy(pinned(to, slot), pinned(from, slot), bytes_of(from.type));
    }
  }
  std::swap(feeds_, other.feeds_);
  std::swap(gpus_, other.gpus_);
  std::swap(copiers_, other.copiers_);
}

StagedFeeds FeedStaging::stage(std::span<const Tensor> feeds, std::stop_token stop) {
  if (!streams_) return StagedFeeds(*this, kNowhere);  // steps of CPUs pay for no lock
  {
    const std::lock_guard lock(linking_);
    require(feeds.size() == feeds_.size(), "the step takes ", feeds_.size(), " feeds, not ",
            feeds.size());
    if (gpus_.empty()) return StagedFeeds(*this, kNowhere);
  }
  const int slot = take(std::move(stop));
  if (slot < 0) return {};
  StagedFeeds staged(*this, slot);
  fill(slot, feeds);
  return staged;
}

// Takes the less recently taken slot, if both are free. Returns kNowhere if a stop is requested.
int FeedStaging::take(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const auto is_free = [](const Slot& slot) { return !slot.taken; };
  if (!freed_.wait(lock, std::move(stop), [&] { return std::ranges::any_of(slots_, is_free); }))
    return kNowhere;
  const int next = (last_ + 1) % FeedSlots::kCount;
  if (is_free(slots_[at(next)])) last_ = next;
  slots_[at(last_)].taken = true;
  return last_;
}

void FeedStaging::give_back(int slot) noexcept {
  if (slot == kNowhere) return;
  const std::lock_guard lock(mutex_);
  slots_[at(slot)].taken = false;
  freed_.notify_all();
}

void FeedStaging::fill(int slot, std::span<const Tensor> feeds) {
  static const RangeName kCopyFeeds("copy feeds");
  const ProfilerRange range(kCopyFeeds);
  const std::lock_guard lock(linking_);
  for (std::size_t i = 0; i < feeds.size(); ++i)
    if (feeds_[i].staged) check_feed(feeds_[i].type, feeds[i]);
  await_copies(slot);
  if (gpus_.empty()) return;  // another plan may have come since stage() looked
  const GpuBackend& backend = *gpus_[0].device->backend;
  bool all_shared = true;
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    const bool is_shared = feeds_[i].staged && is_feed_memory(backend, feeds[i].raw());
    slots_[at(slot)].shared[i] = is_shared ? feeds[i] : no_tensor();
    all_shared = all_shared && (is_shared || !feeds_[i].staged || feeds[i].bytes() == 0);
  }
  const auto copy = [&](int gpu) {
    for (std::size_t i = 0; i < feeds.size(); ++i)
      if (feeds_[i].gpu == gpu && !shares(i, slot) && feeds[i].bytes() > 0)
        std::memcpy(pinned(feeds_[i], slot), feeds[i].raw(), feeds[i].bytes());
  };
  if (!all_shared)
    copiers_->run(static_cast<int>(gpus_.size()), std::ref(copy));  // allocates nothing
  enqueue(slot);
}

void FeedStaging::enqueue(int slot) {
  if (gpus_.empty()) return;
  const std::lock_guard lock(streams_->copying());
  slots_[at(slot)].enqueued = streams_->failures();
  for (const Gpu& gpu : gpus_) {
    gpu.device->backend->use(gpu.device->gpu);
    for (const Part& part : gpu.parts) enqueue(gpu, part, slot);
    gpu.stream->record(*gpu.copied[at(slot)]);
  }
}

// One copy, or one for each feed if some are not in the slot.
void FeedStaging::enqueue(const Gpu& gpu, const Part& part, int slot) {
  if (std::ranges::none_of(part.feeds, [&](std::size_t i) { return shares(i, slot); })) {
    const std::size_t offset = at(slot) * part.bytes;
    gpu.stream->serve(*part.node);
    return gpu.stream->copy(part.to + offset, part.from + offset, part.bytes);
  }
  for (const std::size_t i : part.feeds) {
    const std::size_t bytes = bytes_of(feeds_[i].type);
    if (bytes == 0) continue;
    gpu.stream->serve(feeds_[i].type.where.node());
    gpu.stream->copy(address(i, slot),
                     shares(i, slot) ? slots_[at(slot)].shared[i].raw() : pinned(feeds_[i], slot),
                     bytes);
  }
}

// Waits for copies of feeds that no run took. After a failure, all earlier copies have been waited
// for.
void FeedStaging::await_copies(int slot) {
  const int enqueued = std::exchange(slots_[at(slot)].enqueued, -1);
  if (enqueued < 0 || enqueued != streams_->failures()) return;
  const std::lock_guard lock(streams_->copying());
  for (const Gpu& gpu : gpus_) gpu.stream->drain();
}

int FeedStaging::begin(const StagedFeeds& staged) {
  if (gpus_.empty() && !staged) return 0;  // there was nothing to stage
  require(staged.staging_ == this, staged ? "these feeds were staged for another step"
                                          : "no feeds are staged: run with what stage() returned");
  if (staged.slot_ == kNowhere) return 0;
  if (slots_[at(staged.slot_)].enqueued != streams_->failures()) enqueue(staged.slot_);
  return staged.slot_;
}

void FeedStaging::end(int slot) {
  slots_[at(slot)].enqueued = -1;
  for (Tensor& tensor : slots_[at(slot)].shared)
    if (tensor.elements() > 0) tensor = no_tensor();
}

}  // namespace belfry
