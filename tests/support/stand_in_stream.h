// A stream of a StandInGpus.
#pragma once
#include <condition_variable>
#include <deque>
#include <thread>

#include "belfry/tests/support/stand_in_gpus.h"

namespace belfry::test {

// What a record stands for.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  void set() {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
};

class StandInEvent final : public GpuEvent {
 public:
  explicit StandInEvent(int gpu) : gpu_(gpu) {}
  int gpu() const { return gpu_; }
  std::shared_ptr<Mark> renew() {
    const std::lock_guard lock(mutex_);
    return mark_ = std::make_shared<Mark>();
  }
  // Null before the first record.
  std::shared_ptr<Mark> mark() const {
    const std::lock_guard lock(mutex_);
    return mark_;
  }

 private:
  int gpu_;
  mutable std::mutex mutex_;
  std::shared_ptr<Mark> mark_;
};

class StandInStream final : public GpuStream {
 public:
  StandInStream(const StandInGpus& gpus, int gpu);
  ~StandInStream() override;

  void serve(const Node& node) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void record(GpuEvent& event) override;
  void wait(const GpuEvent& event) override;
  void stamp(std::int64_t& counter, std::int64_t value) override;
  void check() const override;
  void check_inputs() const override {}  // kernels of hosts throw themselves
  void drain() noexcept override;

  int gpu() const { return gpu_; }
  // What throws fails the GPU, with a message that names the node.
  void enqueue(std::function<void()> what);

 private:
  struct Entry {
    std::function<void()> what;
    bool always;  // even if the GPU has failed
    std::string served;
  };
  class Turn;

  void push(std::function<void()> what, bool always);
  void loop();

  const StandInGpus& gpus_;
  int gpu_;
  std::string served_ = "nothing";
  std::atomic<bool> busy_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool idle_ = true, stop_ = false;
  std::thread thread_;
};

}  // namespace belfry::test
