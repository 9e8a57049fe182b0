// Learning rates that change by a rule. The rate of a step depends only on its number, on the steps
// per epoch and on the steps of the run. So a resumed run has the rates of one that did not stop.
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

  // The number of steps that are complete at this time.
  double steps(const StepInfo& info) const;
  std::string str() const;  // "30", "500s"
};

// A rule that makes a rate of a base rate. With a warm-up, rates that move to a goal begin to move
// at its end. Times are counted from the start of the run.
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

// The base rate, times `factor` after each of the times. Like the others here, it throws
// InvalidArgument for rates, factors and times that are negative or not finite. It also does for
// times that do not grow, or of which some are in steps and some in epochs.
RateSchedule step_schedule(std::vector<TrainingTime> times, double factor = 0.1);
// Moves from the base rate to rate `to`, which holds from `until` on; none: the end of the run. The
// way is a line, or half a wave: (1 + cos(pi x)) / 2 of the way are left after x of the time.
RateSchedule linear_schedule(double to = 0, std::optional<TrainingTime> until = {});
RateSchedule cosine_schedule(double to = 0, std::optional<TrainingTime> until = {});
// Tensorpack's ScheduledHyperParamSetter. The rate of a point takes effect after so many epochs (or
// steps), and at once for time 0. Before the first point the base rate holds. Interpolated, the
// rate moves from point to point, after each whole epoch, and stays at the last.
RateSchedule piecewise_schedule(std::vector<RatePoint> points);
RateSchedule interpolated_schedule(std::vector<RatePoint> points);

// Reads "constant", "step:30,60,80@0.1" or "step:30,60", "linear", "linear:TO", "linear:TO@UNTIL",
// the same with cosine, "piecewise:30=0.01,60=0.001", and the same with interpolate. Times are
// epochs ("30", "0.5"), or steps with an s ("500s"). Throws InvalidArgument naming the wrong part,
// with the nearest name.
RateSchedule parse_schedule(std::string_view text);

// The texts that parse_schedule() takes, for --help.
std::string schedule_help();

// The rate of a schedule from a base rate on, with a warm-up (warm_up()) of so many steps. Without
// schedule and warm-up it is the base rate, as a constant.
LearningRate scheduled_rate(double base, const RateSchedule& schedule,
                            std::int64_t warmup_steps = 0);

// Tensorpack's HyperParamSetterWithFunc. After each epoch the rate becomes next(epochs, rate),
// where `epochs` are then complete. It counts as a function of the user (RateFunction).
LearningRate set_each_epoch(double first, std::function<double(int epochs, double rate)> next);

}  // namespace belfry
