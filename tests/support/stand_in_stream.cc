#include "belfry/tests/support/stand_in_stream.h"

#include <algorithm>

#include "belfry/framework/node.h"

namespace belfry::test {

// Of the thread that enqueues.
class StandInStream::Turn {
 public:
  explicit Turn(StandInStream& stream) : busy_(stream.busy_) {
    require<DeviceError>(!busy_.exchange(true), "two threads enqueue in one stream at once");
  }
  ~Turn() { busy_ = false; }

 private:
  std::atomic<bool>& busy_;
};

StandInStream::StandInStream(const StandInGpus& gpus, int gpu)
    : gpus_(gpus), gpu_(gpu), thread_([this] { loop(); }) {}

StandInStream::~StandInStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StandInStream::push(std::function<void()> what, bool always) {
  gpus_.require_used(gpu_);
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::move(what), always, served_});
  changed_.notify_all();
}

void StandInStream::enqueue(std::function<void()> what) {
  const Turn turn(*this);
  push(std::move(what), false);
}

void StandInStream::serve(const Node& node) {
  const Turn turn(*this);
  served_ = std::string(node.name());
}

void StandInStream::copy(void* to, const void* from, std::size_t bytes) {
  const Turn turn(*this);
  ++gpus_.counters_->copied;
  push([to = gpus_.behind(gpu_, to), from = gpus_.behind(gpu_, from),
        bytes] { std::copy_n(from, bytes, to); },
       false);
}

void StandInStream::record(GpuEvent& event) {
  const Turn turn(*this);
  ++gpus_.counters_->records;
  auto& recorded = dynamic_cast<StandInEvent&>(event);
  require<DeviceError>(recorded.gpu() == gpu_, "an event of another GPU is recorded");
  push([mark = recorded.renew()] { mark->set(); }, true);
}

void StandInStream::wait(const GpuEvent& event) {
  const Turn turn(*this);
  ++gpus_.counters_->waits;
  const auto mark = dynamic_cast<const StandInEvent&>(event).mark();
  if (mark) push([mark] { mark->wait(); }, true);
}

void StandInStream::stamp(std::int64_t& counter, std::int64_t value) {
  const Turn turn(*this);
  ++gpus_.counters_->stamps;
  gpus_.behind(gpu_, &counter);
  push([&counter, value] { std::atomic_ref(counter).store(value, std::memory_order_release); },
       false);
}

void StandInStream::check() const {
  const std::string failure = gpus_.failure(gpu_);
  require<DeviceError>(failure.empty(), failure);
}

void StandInStream::drain() noexcept {
  ++gpus_.counters_->drains;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return entries_.empty() && idle_; });
}

void StandInStream::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    idle_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return stop_ || !entries_.empty(); });
    if (entries_.empty()) return;
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    idle_ = false;
    lock.unlock();
    try {
      if (entry.always || gpus_.failure(gpu_).empty()) entry.what();
    } catch (const std::exception& error) {
      gpus_.fail(gpu_, cat(entry.served, ": ", error.what()));
    }
    lock.lock();
  }
}

}  // namespace belfry::test
