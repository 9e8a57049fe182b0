// Times steps and prints them as tf_cnn_benchmarks does.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// How fast steps were, as tf_cnn_benchmarks states it (get_perf_timing).
struct Speed {
  double mean = 0;         // samples / mean(seconds)
  double uncertainty = 0;  // std(samples / seconds) / sqrt(steps), std over n
  double jitter = 0;       // 1.4826 median(|speed - median(speed)|)
};

// `samples` per step; seconds of each step. Throws InvalidArgument for no steps.
Speed speed_of(double samples, std::span<const double> seconds);

inline constexpr const char* kStepHeader = "Step\tImg/sec\tloss";
// "10\timages/sec: 123.4 +/- 0.5 (jitter = 0.6)\t2.303". Steps count from 1.
std::string step_line(std::int64_t step, const Speed& speed, double loss);
// Three lines: 64 dashes, "total images/sec: 123.45", 64 dashes.
std::string total_lines(double images_per_second);

// Leaves out the first `warmup` steps. With a console, prints "Running warm up", "Done warm up" and
// the header. For the first step and every display_every-th, it prints the speed of all steps so
// far. It prints none of these if display_every is 0. In between it shows the step whenever that is
// due (Console::due).
class StepTimer final : public Callback {
 public:
  struct Options {
    std::int64_t warmup = 10;
    std::int64_t display_every = 10;
    Console* console = nullptr;  // borrowed
    std::string what = {};       // what is timed, shown before the step: "round 1 of 3: "
  };
  explicit StepTimer(Options options) : options_(options) {}

  void before_step(Trainer& trainer, const StepInfo& info) override;
  void after_step(Trainer& trainer, const StepInfo& info) override;

  // Seconds of each step after the warm-up.
  std::span<const double> seconds() const { return seconds_; }
  // From the start of the first step after the warm-up to the end of the last step.
  double total_seconds() const { return last_ - first_; }

 private:
  void print(const std::string& line) const;
  void show(const Trainer& trainer, std::int64_t done) const;

  Options options_;
  std::vector<double> seconds_;
  double first_ = 0, started_ = 0, last_ = 0;  // seconds on the timer's clock
};

}  // namespace belfry
