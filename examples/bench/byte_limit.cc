#include "byte_limit.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpu_streams.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/run/workers.h"
#include "belfry/trainers/util/device_list.h"
#include "scale.h"

namespace belfry {

class ByteLimit::Buffers {
 public:
  virtual ~Buffers() = default;
  virtual void run(int times) = 0;
};

namespace {

// Each worker has an equal part of each buffer.
class HostBuffers final : public ByteLimit::Buffers {
 public:
  HostBuffers(std::size_t count, std::int64_t bytes, int workers)
      : elements_(std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(sizeof(float)))),
        memory_("the byte limit"),
        pool_(workers) {
    for (std::size_t k = 0; k < count; ++k) {
      blocks_.emplace_back(memory_, static_cast<std::size_t>(elements_) * sizeof(float));
      streams_.push_back(reinterpret_cast<float*>(blocks_.back().data()));
      std::fill_n(streams_.back(), elements_, 1.F);
    }
  }

  void run(int times) override {
    for (int i = 0; i < times; ++i) scale();
  }

 private:
  void scale() {
    constexpr float kFactor = 1.0000001F;  // moves no value far, however often
    constexpr std::int64_t kLine = 16;     // elements of a cache line
    const std::int64_t lines = (elements_ + kLine - 1) / kLine;
    const std::int64_t workers = pool_.workers();
    pool_.run(pool_.workers(), [&](int w) {
      scale_in_place(streams_, kFactor, lines * w / workers * kLine,
                     std::min(elements_, lines * (w + 1) / workers * kLine));
    });
  }

  std::int64_t elements_;
  Allocator memory_;
  std::vector<MemoryBlock> blocks_;
  std::vector<float*> streams_;
  WorkerPool pool_;
};

// Copies read and write as many bytes as an all-reduce in place.
class GpuBuffers final : public ByteLimit::Buffers {
 public:
  GpuBuffers(std::span<const DeviceSpec> devices, int logical_gpus, std::int64_t bytes)
      : devices_(
            make_devices({.device_count = device_count(devices), .logical_gpus = logical_gpus})),
        streams_(devices_) {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    for (const DeviceSpec& spec : devices) {
      const auto found =
          std::ranges::find_if(devices_, [&](const auto& device) { return device->spec == spec; });
      require(found != devices_.end() && (*found)->backend, "there is no GPU device ", spec);
      Allocator& memory = (*found)->memory;
      MemoryBlock counter(streams_.counters(), sizeof(std::int64_t));
      const Stamp stamp(*reinterpret_cast<std::int64_t*>(counter.data()));
      copied_.push_back({static_cast<int>(found - devices_.begin()), MemoryBlock(memory, size),
                         MemoryBlock(memory, size), std::move(counter), stamp});
    }
  }

  void run(int times) override {
    ++runs_;
    try {
      enqueue_and_wait(times);
    } catch (...) {
      // What has been enqueued still uses the buffers.
      for (const Copied& buffer : copied_) streams_.of(buffer.device).drain();
      throw;
    }
  }

 private:
  struct Copied {
    int device;  // among devices_
    MemoryBlock from, to;
    MemoryBlock counter;
    Stamp stamp;
  };

  void enqueue_and_wait(int times) {
    for (const Copied& buffer : copied_) {
      const Device& device = *devices_[static_cast<std::size_t>(buffer.device)];
      GpuStream& stream = streams_.of(buffer.device);
      device.backend->use(device.gpu);
      for (int i = 0; i < times; ++i)
        stream.copy(buffer.to.data(), buffer.from.data(), buffer.from.bytes());
      stream.stamp(buffer.stamp.counter(), runs_);
    }
    for (const Copied& buffer : copied_)
      while (!buffer.stamp.reached(runs_)) {
        streams_.of(buffer.device).check();
        std::this_thread::yield();
      }
  }

  std::vector<std::unique_ptr<Device>> devices_;
  GpuStreams streams_;
  std::vector<Copied> copied_;
  std::int64_t runs_ = 0;
};

}  // namespace

ByteLimit::ByteLimit(std::span<const DeviceSpec> devices, int logical_gpus, std::int64_t bytes,
                     int workers) {
  if (std::ranges::all_of(devices, &DeviceSpec::is_gpu))
    buffers_ = std::make_unique<GpuBuffers>(devices, logical_gpus, bytes);
  else
    buffers_ = std::make_unique<HostBuffers>(devices.size(), bytes, workers);
}

ByteLimit::~ByteLimit() = default;

void ByteLimit::run(int times) { buffers_->run(times); }

}  // namespace belfry
