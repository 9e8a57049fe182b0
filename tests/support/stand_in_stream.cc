#include "belfry/tests/support/stand_in_stream.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/run/failed_launch.h"

namespace belfry::test {

// The turn of the thread that enqueues.
class StandInStream::Turn {
 public:
  explicit Turn(StandInStream& stream) : busy_(stream.busy_) {
    require<DeviceError>(!busy_.exchange(true), "two threads enqueue in one stream at once");
  }
  ~Turn() { busy_ = false; }

 private:
  std::atomic<bool>& busy_;
};

std::chrono::nanoseconds StandInEvent::time() const {
  const std::shared_ptr<Mark> mark = get().mark;
  require<DeviceError>(timer_ && mark, "time is asked of an event that measures none");
  const std::lock_guard lock(mark->mutex);
  require<DeviceError>(mark->done, "time is asked of an event to which the GPU has not come");
  return mark->time.time_since_epoch();
}

StandInStream::StandInStream(const StandInGpus& gpus, int gpu)
    : gpus_(gpus), gpu_(gpu), number_(gpus.counters_->streams), thread_([this] { loop(); }) {}

StandInStream::~StandInStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StandInStream::push(Work work, bool always) {
  gpus_.require_used(gpu_);
  release();
  work.served = served_;
  if (capture_) {
    work.accesses.push_back(own(true));
    return capture_->add(number_, front_, std::move(work));
  }
  clock_.reach(number_, clock_.of(number_) + 1);
  Entry entry{std::move(work), always};
  if (!entry.work.accesses.empty()) entry.done = gpus_.set_out(number_, clock_, entry.work);
  const std::lock_guard lock(mutex_);
  entries_.push_back(std::move(entry));
  changed_.notify_all();
}

// Lets GPUs go on: the work behind a lost wait is now enqueued.
void StandInStream::release() {
  if (std::exchange(lost_, false)) gpus_.release();
}

void StandInStream::enqueue(std::function<void()> what, std::vector<Access> accesses) {
  const Turn turn(*this);
  push({[this, node = node_, what = std::move(what)] {
          try {
            what();
          } catch (const InvalidArgument&) {
            try {
              if (!node) throw;
              rethrow_with_launch(*node, {});
            } catch (const InvalidArgument&) {
              refuse_input(std::current_exception());
            }
          }
        },
        std::move(accesses)});
}

// A kernel of this stream, maybe in a segment, refuses its input. The first refusal is kept.
void StandInStream::refuse_input(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (!refused_) refused_ = std::move(why);
}

void StandInStream::check_inputs() const {
  const std::lock_guard lock(mutex_);
  if (told_) std::rethrow_exception(told_);
}

void StandInStream::serve(const Node& node) {
  const Turn turn(*this);
  served_ = std::string(node.name());
  node_ = &node;
}

void StandInStream::copy(void* to, const void* from, std::size_t bytes) {
  const Turn turn(*this);
  ++gpus_.counters_->copied;
  std::byte* const target = gpus_.behind(gpu_, to);
  const std::byte* const source = gpus_.behind(gpu_, from);
  push({[=, time = gpus_.copy_time_] {
          if (time.count() > 0) std::this_thread::sleep_for(time);
          std::copy_n(source, bytes, target);
        },
        {accessed(source, bytes, false), accessed(target, bytes, true)}});
}

void StandInStream::copy_each(std::span<void* const> to, std::span<const void* const> from,
                              std::span<const std::size_t> bytes) {
  const Turn turn(*this);
  ++gpus_.counters_->gathered;
  Work work;
  std::vector<std::function<void()>> copies;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::byte* const target = gpus_.behind(gpu_, to[i]);
    const std::byte* const source = gpus_.behind(gpu_, from[i]);
    copies.emplace_back([=, size = bytes[i]] { std::copy_n(source, size, target); });
    work.accesses.push_back(accessed(source, bytes[i], false));
    work.accesses.push_back(accessed(target, bytes[i], true));
  }
  work.what = [copies] {
    for (const auto& copy : copies) copy();
  };
  push(std::move(work));
}

void StandInStream::record(GpuEvent& event) {
  const Turn turn(*this);
  ++gpus_.counters_->records;
  auto& recorded = dynamic_cast<StandInEvent&>(event);
  require<DeviceError>(recorded.gpu() == gpu_, "an event of another GPU is recorded");
  gpus_.require_used(gpu_);
  require<DeviceError>(!capture_ || !recorded.is_timer(), "a timer is captured");
  if (capture_) return recorded.set({.capture = capture_, .front = front_});
  const auto mark = std::make_shared<Mark>();
  recorded.set({.mark = mark, .clock = clock_});
  push({[mark] { mark->set(); }}, true);
}

void StandInStream::wait(const GpuEvent& event) {
  const Turn turn(*this);
  ++gpus_.counters_->waits;
  const StandInEvent::Recorded recorded = dynamic_cast<const StandInEvent&>(event).get();
  if (gpus_.loses_wait(gpu_)) {
    lost_ = true;
    if (recorded.capture) release();
    return;
  }
  if (recorded.capture && !capture_) {
    require<DeviceError>(recorded.capture->active(),
                         "an event of a capture that has ended is waited for (907)");
    require<DeviceError>(dynamic_cast<const StandInEvent&>(event).gpu() == gpu_,
                         "a stream of another GPU takes part in a capture");
    recorded.capture->join(*this);
    capture_ = recorded.capture;
    front_ = {};
  }
  if (capture_) {
    if (recorded.capture != capture_)
      capture_->refuse(cat(served_, ": what a capture waits for is no part of it (905)"));
    front_.nodes.insert(front_.nodes.end(), recorded.front.nodes.begin(),
                        recorded.front.nodes.end());
    front_.clock.come_behind(recorded.front.clock);
    return;
  }
  if (!recorded.mark) return;
  clock_.come_behind(recorded.clock);
  push({[mark = recorded.mark] { mark->wait(); }}, true);
}

void StandInStream::stamp(std::int64_t& counter, std::int64_t value) {
  const Turn turn(*this);
  refuse_capture("a stamp, which would be the same each time,");
  ++gpus_.counters_->stamps;
  gpus_.behind(gpu_, &counter);
  push({[this, &counter, value] {
          {
            const std::lock_guard lock(mutex_);
            told_ = refused_;
          }
          std::atomic_ref(counter).store(value, std::memory_order_release);
        },
        {own(false)},
        {},
        false});
}

// An access that stands for all work of the stream in segments, so that a stamp comes behind it.
Access StandInStream::own(bool writes) const { return accessed(&number_, 1, writes); }

void StandInStream::set_step(GpuStream& kernels, std::uint64_t step) {
  const Turn turn(*this);
  auto& of = dynamic_cast<StandInStream&>(kernels);
  require<DeviceError>(of.gpu_ == gpu_, "the step is set on another GPU");
  refuse_capture("the number of a step, which would be the same each time,");
  push({[&of, step] { of.step_ = step; }, {accessed(&of.step_, sizeof step, true)}});
}

void StandInStream::begin_capture(const Node&, const Node&) {
  const Turn turn(*this);
  gpus_.require_used(gpu_);
  refuse_capture("a capture in a capture");
  require<DeviceError>(!capturing, "a thread captures in two streams at once");
  ++gpus_.counters_->captures;
  capture_ = std::make_shared<StandInCapture>(*this);
  capturing = capture_.get();
  front_ = {};
}

std::unique_ptr<GpuSegment> StandInStream::end_capture() {
  const Turn turn(*this);
  require<DeviceError>(capture_ && capture_->is_of(*this),
                       "a capture ends in another stream than it began in (903)");
  require<DeviceError>(capture_->by_this_thread(),
                       "a capture ends in another thread than it began in (908)");
  require<DeviceError>(capture_->broken().empty(), "a capture was ended by: ", capture_->broken(),
                       " (901)");
  for (const StandInStream* stream : capture_->streams())
    if (stream->front_.clock.of(stream->number_) > front_.clock.of(stream->number_))
      capture_->refuse("a capture ends before a stream that takes part in it (904)");
  const std::shared_ptr<StandInCapture> ended = capture_;
  for (StandInStream* stream : ended->streams()) stream->capture_ = nullptr;
  std::vector<Work> work = ended->in_order();
  ended->end();
  capturing = nullptr;
  return std::make_unique<StandInSegment>(gpu_, std::move(work));
}

void StandInStream::abandon_capture() noexcept {
  const std::shared_ptr<StandInCapture> ended = capture_;
  if (!ended) return;
  for (StandInStream* stream : ended->streams()) stream->capture_ = nullptr;
  ended->end();
  capturing = nullptr;
}

void StandInStream::launch(const GpuSegment& segment) {
  const Turn turn(*this);
  refuse_capture("a segment");
  const auto& captured = dynamic_cast<const StandInSegment&>(segment);
  require<DeviceError>(captured.gpu() == gpu_, "a segment of another GPU is launched");
  ++gpus_.counters_->replays;
  push({[this, work = captured.keep()] {
          for (const Work& part : *work) run(part);
        },
        captured.accesses()});
}

void StandInStream::refuse_capture(const char* call) const {
  if (capture_) capture_->refuse(cat(call, " is asked of a stream that is captured (900)"));
}

void StandInStream::check() const {
  ++gpus_.counters_->checks;
  refuse_capture("whether it has failed");
  const std::string failure = gpus_.failure(gpu_);
  require<DeviceError>(failure.empty(), failure);
}

void StandInStream::drain() noexcept {
  ++gpus_.counters_->drains;
  if (capture_) capture_->spoil("it is waited for a stream that is captured (900)");
  if (capturing) capturing->spoil("a thread that captures waits (900)");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return entries_.empty() && idle_; });
  refused_ = told_ = nullptr;
}

// A GPU that has failed does nothing.
void StandInStream::run(const Work& work) const {
  if (!gpus_.failure(gpu_).empty()) return;
  try {
    work.what();
  } catch (const std::exception& error) {
    gpus_.fail(gpu_, cat(work.served, ": ", error.what()));
  }
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
    if (entry.done) gpus_.idle();
    if (entry.always)
      entry.work.what();
    else
      run(entry.work);
    if (entry.done) entry.done->store(true, std::memory_order_release);
    lock.lock();
  }
}

}  // namespace belfry::test
