// Learning rates that change by a rule. The rate of a step depends only on its number, on the
// number of steps per epoch, and on that of the run. So a resumed run has the same rates as one
// that never stopped.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/trainers/util/learning_rate.h"

namespace belfry {

// A time in a run: after `count` epochs or steps.
struct TrainingTime {
  double count = 0;
  bool in_steps = false;

  // The number of steps that are complete at this time.
  double steps(const StepInfo& info) const;
  std::string str() const;  // "30", "500s"
};

// A rule that computes the rate of a step from a base rate. With a warm-up, rules that move the
// rate towards a target start at the end of the warm-up. Times count from the start of the run.
class RateSchedule {
 public:
  // `begin`: the step at which the warm-up ends.
  using Rule = std::function<double(double base, const StepInfo& info, double begin)>;
  RateSchedule() = default;  // constant
  // `text` describes it completely, as parse_schedule() reads it.
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

// The base rate, multiplied by `factor` at each of the times. Like the other functions here, it
// throws InvalidArgument for rates, factors and times that are negative or not finite, for times
// that do not increase, and for a mixture of steps and epochs.
RateSchedule step_schedule(std::vector<TrainingTime> times, double factor = 0.1);
// Both move from the base rate to the rate `to`, which they reach at `until` (none: at the end of
// the run) and keep. One moves along a line. The other moves along half a cosine wave: after a
// share x of the time, (1 + cos(pi x)) / 2 of the way is left.
RateSchedule linear_schedule(double to = 0, std::optional<TrainingTime> until = {});
RateSchedule cosine_schedule(double to = 0, std::optional<TrainingTime> until = {});
// Tensorpack's ScheduledHyperParamSetter. The rate of a point takes effect after its number of
// epochs (or steps); for time 0, at once. Before the first point the base rate holds.
// interpolated_schedule changes the rate after each whole epoch, along lines from point to point,
// and keeps it after the last point.
RateSchedule piecewise_schedule(std::vector<RatePoint> points);
RateSchedule interpolated_schedule(std::vector<RatePoint> points);

// Reads "constant", "step:30,60,80@0.1" or "step:30,60", "linear", "linear:TO", "linear:TO@UNTIL",
// the same with cosine, "piecewise:30=0.01,60=0.001", and the same with interpolate. Times are
// epochs ("30", "0.5"), or steps with an s ("500s"). Throws InvalidArgument naming the wrong part,
// with the nearest name.
RateSchedule parse_schedule(std::string_view text);

// The texts that parse_schedule() takes, for --help.
std::string schedule_help();

// The rate of a schedule with this base rate and a warm-up (warm_up()) of that many steps. Without
// schedule and warm-up it is the constant base rate.
LearningRate scheduled_rate(double base, const RateSchedule& schedule,
                            std::int64_t warmup_steps = 0);

// Tensorpack's HyperParamSetterWithFunc. After each epoch the rate becomes next(epochs, rate),
// where `epochs` counts the complete epochs. It counts as a user's function (RateFunction).
LearningRate set_each_epoch(double first, std::function<double(int epochs, double rate)> next);

}  // namespace belfry
