// Learning rates: constants, and schedules that follow the training.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace belfry {

// Where training stands. `step` counts from 0: inside a step's callbacks it is the number of steps
// completed before it.
struct StepInfo {
  std::int64_t step = 0;
  std::int64_t steps_per_epoch = 0;
  int epoch = 0;                 // from 0
  double seconds = 0;            // since training began
  std::int64_t total_steps = 0;  // when the run ends; 0: nobody knows
};

// A function of what it is told alone: it may be asked about any step of a run, any number of
// times, and a resumed run asks again. It is told no time: `seconds` is 0.
using RateFunction = std::function<double(const StepInfo&)>;

// A learning rate. A schedule is asked before every step.
class LearningRate {
 public:
  LearningRate(double value) : value_(value) {}  // NOLINT
  template <class F>
  requires(std::is_invocable_r_v<double, F&, const StepInfo&>) LearningRate(F schedule)
      : schedule_(std::move(schedule)), given_(static_cast<bool>(schedule_)) {}  // NOLINT
  // A schedule that `text` says all of: others with the same text are equal to it.
  LearningRate(RateFunction schedule, std::string text)
      : schedule_(std::move(schedule)),
        given_(static_cast<bool>(schedule_)),
        text_(std::move(text)) {}

  bool is_constant() const { return !schedule_; }
  // Whether str() says all of it: not if a function of the user's is behind it.
  bool is_described() const { return is_constant() || !text_.empty(); }

  // Throws InvalidArgument if the rate is negative or not finite, naming the step for schedules,
  // and for a schedule that is an empty function.
  double at(const StepInfo& info) const;

  // For people: "0.1", "cosine:0@90 from 0.1", "a function of the program's".
  std::string str() const;
  // For comparisons (same_rates()). It is the same, but a user's function gives its values at a
  // fixed set of steps: the first ones, one in nine of the others, and the first of 128 epochs.
  // `run` has the steps per epoch and in all. Throws as at() does.
  std::string str(const StepInfo& run) const;

 private:
  std::string sampled(const StepInfo& run) const;

  double value_ = 0;
  RateFunction schedule_;
  bool given_ = true;
  std::string text_;
};

// Whether two texts of LearningRate::str(run) are of the same rate, as far as both tell: runs may
// differ in their lengths.
bool same_rates(std::string_view one, std::string_view other);

// Whether a rate depends on the number of steps in all: of the first `steps` steps, some have other
// rates in a run of `total` steps than in `run`. Those that LearningRate::str(run) looks at are
// compared.
bool depends_on_length(const LearningRate& rate, const StepInfo& run, std::int64_t total,
                       std::int64_t steps);

// The first `steps` steps approach the rate: step i, counted from 1, has i / steps of it. From
// step `steps` on it is all there. Throws InvalidArgument for a negative number.
LearningRate warm_up(LearningRate rate, std::int64_t steps);

}  // namespace belfry
