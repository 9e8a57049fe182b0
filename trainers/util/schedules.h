// Learning rates that change by a rule. What they are at a step depends on its number, on the steps
// per epoch and on those in all, and on nothing else. So a resumed run has the rates of one that
// did not stop.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/util/learning_rate.h"

namespace belfry {

// A time of a run: after so many epochs, or steps.
struct TrainingTime {
  double count = 0;
  bool in_steps = false;

  // The steps that are complete then.
  double steps(const StepInfo& info) const;
  std::string str() const;  // "30", "500s"
};

// A rule that makes a rate of a base rate. With a warm-up those that move to a goal begin at its
// end, while times are counted from the start of the run.
class RateSchedule {
 public:
  // `begin`: the step at which the warm-up ends.
  using Rule = std::function<double(double base, const StepInfo& info, double begin)>;
  RateSchedule() = default;  // constant
  // `text` says all of it, as schedule() reads it.
  RateSchedule(std::string text, Rule rule) : text_(std::move(text)), rule_(std::move(rule)) {}

  bool is_constant() const { return !rule_; }
  const std::string& str() const { return text_; }
  double at(double base, const StepInfo& info, double begin) const {
    return rule_ ? rule_(base, info, begin) : base;
  }

 private:
  std::string text_ = "constant";
  Rule rule_;
};

struct RatePoint {
  TrainingTime time;
  double rate = 0;
};

// The base rate, times `factor` after each of the times. As the others here: throws InvalidArgument
// for rates, factors and times that are negative or not finite, and for times that do not grow, or
// are some in steps and some in epochs.
RateSchedule step_schedule(std::vector<TrainingTime> times, double factor = 0.1);
// From the base rate to another, which it has from a time on; none: the end of the run. Along a
// line, or along half a wave: (1 + cos(pi x)) / 2 of the way are left where x of the time is over.
RateSchedule linear_schedule(double to = 0, std::optional<TrainingTime> until = {});
RateSchedule cosine_schedule(double to = 0, std::optional<TrainingTime> until = {});
// Tensorpack's ScheduledHyperParamSetter: the rate of a point takes effect after so many epochs (or
// steps), that of time 0 at once; before the first point there is the base rate. Interpolated, the
// rate moves from point to point, after each whole epoch, and stays at the last.
RateSchedule piecewise_schedule(std::vector<RatePoint> points);
RateSchedule interpolated_schedule(std::vector<RatePoint> points);

// Reads "constant", "step:30,60,80@0.1" or "step:30,60", "linear", "linear:TO",
// "linear:TO@UNTIL", the same with cosine, "piecewise:30=0.01,60=0.001", and the same with
// interpolate. Times are epochs ("30", "0.5"), or steps with an s ("500s"). Throws InvalidArgument
// naming the part that cannot be, with the nearest name.
RateSchedule parse_schedule(std::string_view text);

// The texts that parse_schedule() takes, for --help.
std::string schedule_help();

// A schedule from a base rate on, with a warm-up (warm_up()) of so many steps. Without either it
// is the base rate, as a constant.
LearningRate scheduled_rate(double base, const RateSchedule& schedule,
                            std::int64_t warmup_steps = 0);

// Tensorpack's HyperParamSetterWithFunc: after each epoch, of which `epochs` are then complete, the
// rate becomes next(epochs, rate). It is a function of the user's (RateFunction).
LearningRate set_each_epoch(double first, std::function<double(int epochs, double rate)> next);

}  // namespace belfry
