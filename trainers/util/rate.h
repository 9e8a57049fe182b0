// Learning rates: constants, and schedules that follow the training.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>

namespace belfry {

// Where training stands. `step` counts from 0: inside a step's callbacks it is the number of steps
// completed before it.
struct StepInfo {
  std::int64_t step = 0;
  std::int64_t steps_per_epoch = 0;
  int epoch = 0;       // from 0
  double seconds = 0;  // since training began
};

using Schedule = std::function<double(const StepInfo&)>;

// A learning rate. A schedule is asked before every step.
class Rate {
 public:
  Rate(double value) : value_(value) {}  // NOLINT
  template <class F>
  requires(std::is_invocable_r_v<double, F&, const StepInfo&>) Rate(F schedule)
      : schedule_(std::move(schedule)), given_(static_cast<bool>(schedule_)) {}  // NOLINT

  bool is_constant() const { return !schedule_; }

  // Throws InvalidArgument if the rate is negative or not finite, naming the step for schedules,
  // and for a schedule that is an empty function.
  double at(const StepInfo& info) const;

 private:
  double value_ = 0;
  Schedule schedule_;
  bool given_ = true;
};

}  // namespace belfry
