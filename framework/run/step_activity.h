// What a run of a step does, for a watch: which launches run, and which strands wait for them.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "belfry/framework/base/activity.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/plan/commands.h"

namespace belfry {

class CpuExecutor;
class GpuExecutor;
struct LinkedPlan;

// Costs a run two stores. The watch reads the positions in command lists, which executors keep.
class StepActivity final : public Activity {
 public:
  // `gpus` may be null if the plan has none. Borrows all.
  StepActivity(const LinkedPlan& linked, const CpuExecutor& cpus, const GpuExecutor* gpus,
               const std::vector<std::unique_ptr<Device>>& devices);

  // A run is under way while it lives. One at a time.
  class Run {
   public:
    explicit Run(StepActivity& of) : of_(of) { of_.turn(); }
    ~Run() { of_.turn(); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    StepActivity& of_;
  };

  Kind kind() const override { return Kind::kStep; }
  std::optional<Clock::time_point> stuck_since(Clock::time_point now) override;
  // "cpu:1 has computed Sleep 'tower1/Sleep' (built at model.cc:14) for 10.2 s; cpu:0 waits for it
  // at 'AllReduce'".
  ErrorOrigin describe(Clock::time_point now) const override;

 private:
  class Text;

  void turn() {
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  const LinkedPlan& linked_;
  const CpuExecutor& cpus_;
  const GpuExecutor* const gpus_;
  const std::vector<std::unique_ptr<Device>>& devices_;
  std::atomic<std::uint64_t> turns_{0};  // odd while a run is under way
  // As the watch saw them.
  LastChange parts_;
  std::vector<LastChange> routes_, programs_;
  ShownActivity shown_{*this};
};

}  // namespace belfry
