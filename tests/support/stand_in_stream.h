// A stream of a StandInGpus.
#pragma once
#include <condition_variable>
#include <deque>
#include <thread>

#include "belfry/tests/support/stand_in_capture.h"
#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry::test {

// A place that a record stands for.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point time = {};  // when `done` was set

  void set() {
    const std::lock_guard lock(mutex);
    done = true;
    time = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
};

class StandInEvent final : public GpuEvent {
 public:
  // The place of an event: behind the work of a stream so far, or in a capture.
  struct Recorded {
    std::shared_ptr<Mark> mark;
    Clock clock;
    std::shared_ptr<StandInCapture> capture;
    StandInCapture::Front front;
  };

  explicit StandInEvent(int gpu, bool timer = false) : gpu_(gpu), timer_(timer) {}
  int gpu() const { return gpu_; }
  bool is_timer() const { return timer_; }
  void set(Recorded recorded) {
    const std::lock_guard lock(mutex_);
    recorded_ = std::move(recorded);
  }
  // The place is empty before the first record.
  Recorded get() const {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  // When the GPU came to a timer. Throws DeviceError if it has not.
  std::chrono::nanoseconds time() const;

 private:
  int gpu_;
  bool timer_;
  mutable std::mutex mutex_;
  Recorded recorded_;
};

class StandInStream final : public GpuStream {
 public:
  StandInStream(const StandInGpus& gpus, int gpu);
  ~StandInStream() override;

  void get_ready(const GpuRun&) override {}
  void serve(const Node& node) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_each(std::span<void* const> to, std::span<const void* const> from,
                 std::span<const std::size_t> bytes) override;
  void record(GpuEvent& event) override;
  void wait(const GpuEvent& event) override;
  void stamp(std::int64_t& counter, std::int64_t value) override;
  void set_step(GpuStream& kernels, std::uint64_t step) override;
  void begin_capture(const Node& first, const Node& last) override;
  std::unique_ptr<GpuSegment> end_capture() override;
  void abandon_capture() noexcept override;
  void launch(const GpuSegment& segment) override;
  void check() const override;
  void check_inputs() const override;
  void drain() noexcept override;

  int gpu() const { return gpu_; }
  // An exception fails the GPU, with a message that names the node. InvalidArgument does not.
  void enqueue(std::function<void()> what, std::vector<Access> accesses = {});
  // Running kernels read the number of the step here.
  const std::uint64_t& step() const { return step_; }

 private:
  struct Entry {
    Work work;
    bool always;                                   // even if the GPU has failed
    std::shared_ptr<std::atomic<bool>> done = {};  // set if other work must see it in flight
  };
  class Turn;

  void push(Work work, bool always = false);
  void refuse_input(std::exception_ptr why);
  Access own(bool writes) const;
  void release();
  void loop();
  void run(const Work& work) const;
  // Throws if this stream takes part in a capture, which is then broken.
  void refuse_capture(const char* call) const;

  const StandInGpus& gpus_;
  int gpu_;
  int number_;  // among all streams
  std::string served_ = "nothing";
  const Node* node_ = nullptr;  // the node that is served
  bool lost_ = false;           // whether a wait is lost right now
  Clock clock_;
  std::shared_ptr<StandInCapture> capture_;  // the capture that goes on
  StandInCapture::Front front_;
  std::uint64_t step_ = 0;
  std::atomic<bool> busy_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr refused_, told_;  // refused by a kernel; told with a stamp
  std::deque<Entry> entries_;
  bool idle_ = true, stop_ = false;
  std::thread thread_;
};

}  // namespace belfry::test
