// Learning rates: constants, and schedules that follow the training.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace belfry {

// The position of a step in the training. `step` counts from 0: inside the callbacks of a step it
// is the number of steps completed before.
struct StepInfo {
  std::int64_t step = 0;
  std::int64_t steps_per_epoch = 0;
  int epoch = 0;                 // from 0
  double seconds = 0;            // since training began
  std::int64_t total_steps = 0;  // the end of the run; 0: unknown
};

// A function of StepInfo alone. It may be asked about any step of a run, any number of times, and a
// resumed run asks again. It gets no time: `seconds` is 0.
using RateFunction = std::function<double(const StepInfo&)>;

// A learning rate: a constant, or a schedule that is called before every step.
class LearningRate {
 public:
  LearningRate(double value) : value_(value) {}  // NOLINT
  template <class F>
  requires(std::is_invocable_r_v<double, F&, const StepInfo&>) LearningRate(F schedule)
      : schedule_(std::move(schedule)), given_(static_cast<bool>(schedule_)) {}  // NOLINT
  // A schedule that `text` describes completely: schedules with equal texts are equal.
  LearningRate(RateFunction schedule, std::string text)
      : schedule_(std::move(schedule)),
        given_(static_cast<bool>(schedule_)),
        text_(std::move(text)) {}

  bool is_constant() const { return !schedule_; }
  // Whether str() describes it completely. It does not for a function of the user.
  bool is_described() const { return is_constant() || !text_.empty(); }

  // Throws InvalidArgument if the rate is negative or not finite, naming the step for schedules.
  // Also throws it for a schedule that is an empty function.
  double at(const StepInfo& info) const;

  // For people: "0.1", "cosine:0@90 from 0.1", "a function of the program's".
  std::string str() const;
  // Text for comparisons (same_rates()). It equals str(), but a user's function gives its values at
  // a fixed set of steps: the first ones, one in nine of the others, and the first of 128 epochs.
  // `run` has the steps per epoch and of the run. Throws as at() does.
  std::string str(const StepInfo& run) const;

 private:
  std::string sampled(const StepInfo& run) const;

  double value_ = 0;
  RateFunction schedule_;
  bool given_ = true;
  std::string text_;
};

// Whether two texts of LearningRate::str(run) agree on the steps that both cover. Runs may differ
// in their lengths.
bool same_rates(std::string_view one, std::string_view other);

// Whether a rate depends on the length of the run. It does if some of the first `steps` steps have
// other rates in a run of `total` steps than in `run`. Only the steps that LearningRate::str(run)
// samples are compared.
bool depends_on_length(const LearningRate& rate, const StepInfo& run, std::int64_t total,
                       std::int64_t steps);

// Warms up to the rate: step i of the first `steps` steps, counted from 1, has the rate times i /
// steps. From step `steps` on it is the full rate. Throws InvalidArgument for a negative number.
LearningRate warm_up(LearningRate rate, std::int64_t steps);

}  // namespace belfry
