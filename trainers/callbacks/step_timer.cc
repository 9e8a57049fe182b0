#include "belfry/trainers/callbacks/step_timer.h"

#include <cmath>
#include <numeric>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/util/clock.h"
#include "belfry/trainers/util/statistics.h"

namespace belfry {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

Speed speed_of(double samples, std::span<const double> seconds) {
  require(!seconds.empty(), "no steps have no speed");
  std::vector<double> speeds;
  for (const double s : seconds) speeds.push_back(samples / s);
  const double center = mean(speeds), middle = median(speeds);
  double squares = 0;
  std::vector<double> distances;
  for (const double speed : speeds) {
    squares += (speed - center) * (speed - center);
    distances.push_back(std::abs(speed - middle));
  }
  const auto n = static_cast<double>(speeds.size());
  return {.mean = samples / mean(seconds),
          .uncertainty = std::sqrt(squares / n) / std::sqrt(n),
          .jitter = 1.4826 * median(distances)};
}

std::string step_line(std::int64_t step, const Speed& speed, double loss) {
  return cat(step, "\timages/sec: ", rounded(speed.mean, 1), " +/- ", rounded(speed.uncertainty, 1),
             " (jitter = ", rounded(speed.jitter, 1), ")\t", rounded(loss, 3));
}

std::string total_lines(double images_per_second) {
  const std::string dashes(64, '-');
  return cat(dashes, "\ntotal images/sec: ", rounded(images_per_second, 2), "\n", dashes);
}

void StepTimer::print(const std::string& line) const {
  if (options_.console && options_.display_every > 0) options_.console->line(line);
}

void StepTimer::show(const Trainer& trainer, std::int64_t done) const {
  const std::int64_t warmup = options_.warmup;
  if (done <= warmup && warmup > 0)
    show_if_due(options_.console, options_.what, "warm-up step ", done, "/", warmup);
  else
    show_if_due(options_.console, options_.what, "step ", done - warmup, "/",
                trainer.progress().total_steps() - warmup);
}

void StepTimer::before_step(Trainer& trainer, const StepInfo& info) {
  if (info.step == 0) show(trainer, 0);
  if (info.step == 0 && options_.warmup > 0) print("Running warm up");
  if (info.step == options_.warmup) {
    if (options_.warmup > 0) print("Done warm up");
    print(kStepHeader);
  }
  started_ = seconds_now();
  if (info.step == options_.warmup) first_ = started_;
}

void StepTimer::after_step(Trainer& trainer, const StepInfo& info) {
  last_ = seconds_now();
  const std::int64_t step = info.step - options_.warmup + 1;
  if (step >= 1) seconds_.push_back(last_ - started_);
  const bool prints = options_.console && options_.display_every > 0 && step >= 1 &&
                      (step == 1 || step % options_.display_every == 0);
  if (!prints) return show(trainer, info.step + 1);
  const auto samples = static_cast<double>(trainer.built().batches().samples_per_step());
  print(step_line(step, speed_of(samples, seconds_), trainer.metric("loss")));
}

}  // namespace belfry
