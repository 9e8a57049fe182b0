#include "belfry/trainers/step_timer.h"

#include <chrono>
#include <cstdio>

#include "belfry/trainers/trainer.h"

namespace belfry {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string step_line(std::int64_t step, const Speed& speed, double loss) {
  char text[160];
  std::snprintf(text, sizeof text, "%lld\timages/sec: %.1f +/- %.1f (jitter = %.1f)\t%.3f",
                static_cast<long long>(step), speed.mean, speed.uncertainty, speed.jitter, loss);
  return text;
}

std::string total_lines(double images_per_second) {
  const std::string dashes(64, '-');
  char total[64];
  std::snprintf(total, sizeof total, "total images/sec: %.2f", images_per_second);
  return cat(dashes, "\n", total, "\n", dashes);
}

void StepTimer::print(const std::string& line) const {
  if (options_.console) options_.console->line(line);
}

void StepTimer::before_step(Trainer&, const StepInfo& info) {
  if (info.step == 0 && options_.warmup > 0) print("Running warm up");
  if (info.step == options_.warmup) {
    if (options_.warmup > 0) print("Done warm up");
    print(kStepHeader);
  }
  started_ = now();
  if (info.step == options_.warmup) first_ = started_;
}

void StepTimer::after_step(Trainer& trainer, const StepInfo& info) {
  last_ = now();
  if (info.step < options_.warmup) return;
  seconds_.push_back(last_ - started_);
  const std::int64_t step = info.step - options_.warmup + 1;
  if (!options_.console || (step != 1 && step % options_.display_every != 0)) return;
  const auto samples = static_cast<double>(trainer.batches().global_batch());
  print(step_line(step, speed_of(samples, seconds_), trainer.metric("loss")));
}

}  // namespace belfry
