#include "belfry/trainers/util/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/kernels/trig.h"

namespace belfry {
namespace {

void check_number(const char* what, double value) {
  require(std::isfinite(value) && value >= 0, "a ", what, " of ", value,
          "; it must be finite and not negative");
}

// Times must all be in steps, or all in epochs, and must grow, so that no two of them meet.
void check_times(const std::vector<TrainingTime>& times) {
  require(!times.empty(), "a schedule without times; give at least one");
  for (std::size_t i = 0; i < times.size(); ++i) {
    check_number("time", times[i].count);
    if (i == 0) continue;
    require(times[i].in_steps == times[0].in_steps, "the times ", times[0], " and ", times[i],
            " are one in steps and one in epochs; use one kind");
    require(times[i - 1].count < times[i].count, "the time ", times[i], " stands behind ",
            times[i - 1], "; times must grow");
  }
}

std::vector<TrainingTime> checked_times(const std::vector<RatePoint>& points) {
  std::vector<TrainingTime> times;
  for (const RatePoint& point : points) {
    check_number("rate", point.rate);
    times.push_back(point.time);
  }
  check_times(times);
  return times;
}

std::string text_of(const std::vector<RatePoint>& points) {
  std::vector<std::string> parts;
  for (const RatePoint& point : points) parts.push_back(cat(point.time, "=", point.rate));
  return join(parts, ",");
}

// The step at which the schedule ends.
double end_of(const std::optional<TrainingTime>& until, const StepInfo& info) {
  require(until || info.total_steps > 0,
          "a schedule that lasts until the end of the run needs StepInfo::total_steps");
  return until ? until->steps(info) : static_cast<double>(info.total_steps);
}

// Moves from the base rate to another. left(x) of the way are left after x of the time.
RateSchedule moving(const char* name, double to, std::optional<TrainingTime> until,
                    double (*left)(double)) {
  check_number("rate", to);
  if (until) check_number("time", until->count);
  return {cat(name, ":", to, until ? cat("@", *until) : ""),
          [=](double base, const StepInfo& info, double begin) {
            const double end = end_of(until, info), step = static_cast<double>(info.step);
            if (step >= end) return to;
            if (step <= begin) return base;
            return to + (base - to) * left((step - begin) / (end - begin));
          }};
}

// The complete steps, or whole epochs, as the rates of tensorpack change between epochs.
double complete(const TrainingTime& unit, const StepInfo& info) {
  const auto step = static_cast<double>(info.step);
  if (unit.in_steps || info.steps_per_epoch <= 0) return unit.in_steps ? step : 0;
  return std::floor(step / static_cast<double>(info.steps_per_epoch));
}

double between(const RatePoint& a, const RatePoint& b, double time) {
  const double share = (time - a.time.count) / (b.time.count - a.time.count);
  return a.rate + share * (b.rate - a.rate);
}

}  // namespace

double TrainingTime::steps(const StepInfo& info) const {
  return in_steps ? count : count * static_cast<double>(info.steps_per_epoch);
}

std::string TrainingTime::str() const { return cat(count, in_steps ? "s" : ""); }

RateSchedule step_schedule(std::vector<TrainingTime> times, double factor) {
  check_times(times);
  check_number("factor", factor);
  const std::string text = cat("step:", join(times, ","), "@", factor);
  return {text, [times = std::move(times), factor](double base, const StepInfo& info, double) {
            double rate = base;
            for (const TrainingTime& time : times)
              if (static_cast<double>(info.step) >= time.steps(info)) rate *= factor;
            return rate;
          }};
}

RateSchedule linear_schedule(double to, std::optional<TrainingTime> until) {
  return moving("linear", to, until, [](double x) { return 1 - x; });
}

// By a cosine of ours: that of the C library differs between versions, and so would the rates of
// processes.
RateSchedule cosine_schedule(double to, std::optional<TrainingTime> until) {
  return moving("cosine", to, until,
                [](double x) { return 0.5 * (1 + math::cos(std::numbers::pi * x)); });
}

RateSchedule piecewise_schedule(std::vector<RatePoint> points) {
  checked_times(points);
  const std::string text = cat("piecewise:", text_of(points));
  return {text, [points = std::move(points)](double base, const StepInfo& info, double) {
            double rate = base;
            for (const RatePoint& point : points)
              if (static_cast<double>(info.step) >= point.time.steps(info)) rate = point.rate;
            return rate;
          }};
}

RateSchedule interpolated_schedule(std::vector<RatePoint> points) {
  checked_times(points);
  const std::string text = cat("interpolate:", text_of(points));
  return {text, [points = std::move(points)](double base, const StepInfo& info, double) {
            const double now = complete(points[0].time, info);
            const auto next = std::ranges::find_if(
                points, [&](const RatePoint& point) { return point.time.count > now; });
            if (next == points.begin()) return base;
            const RatePoint& last = *std::prev(next);
            return next == points.end() ? last.rate : between(last, *next, now);
          }};
}

LearningRate scheduled_rate(double base, const RateSchedule& schedule, std::int64_t warmup_steps) {
  if (schedule.is_constant()) return warm_up(base, warmup_steps);
  const LearningRate rate([base, schedule, begin = static_cast<double>(warmup_steps)](
                              const StepInfo& info) { return schedule.at(base, info, begin); },
                          cat(schedule.str(), " from ", base));
  return warm_up(rate, warmup_steps);
}

LearningRate set_each_epoch(double first, std::function<double(int epochs, double rate)> next) {
  require(static_cast<bool>(next), "the function of set_each_epoch() is empty");
  return LearningRate([first, next = std::move(next)](const StepInfo& info) {
    double rate = first;
    const std::int64_t epochs =
        info.steps_per_epoch > 0 ? info.step / info.steps_per_epoch : info.epoch;
    for (int epoch = 1; epoch <= epochs; ++epoch) rate = next(epoch, rate);
    return rate;
  });
}

}  // namespace belfry
