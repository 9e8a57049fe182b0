// Towers that train without waiting for each other: a thread, a plan and a stream of samples each.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "belfry/framework/trace/trace.h"
#include "belfry/trainers/core/training_step.h"
#include "belfry/trainers/data/prefetch.h"

namespace belfry {

// Each of K towers makes `steps` tower steps over its own share of the samples. A round is any K
// tower steps, in the order in which they end: round r is complete when (r + 1) * K have ended,
// whichever towers made them.
class FreeTowers {
 public:
  struct Options {
    std::span<TrainingStep> towers;  // of LockDuration::kEachVariable, one per tower
    const Dataset& data;
    const BatchPlan& plan;
    BatchPlan::Position start;  // of every tower
    std::int64_t steps;         // of each tower
    std::int64_t traced = -1;   // tower 0's step to trace, from 0; -1: none
    int data_workers = 1;       // of each tower; 0: its own thread
  };

  // Starts the threads. Borrows all. Throws DeviceError if they cannot be started.
  explicit FreeTowers(Options options);
  // Waits for the tower steps that are under way; they count in no round.
  ~FreeTowers();
  FreeTowers(const FreeTowers&) = delete;
  FreeTowers& operator=(const FreeTowers&) = delete;

  // Waits for the end of the next round, and sets `metrics` to what the samples of its tower steps
  // give, the loss first. Towers may be up to one round ahead. `left` is how many rounds, this one
  // included, may begin before the next call; with 1 all towers are idle afterwards. `rate` applies
  // to tower steps that begin from now on. Throws the first error of a tower; the others stop
  // before their next step.
  void next(double rate, std::int64_t left, std::span<NamedValue> metrics);
  // The trace of tower 0's traced step, once, when that has ended; else none.
  std::optional<Trace> take_trace();
  // not_finite_input() of the first tower step whose loss was not finite; "" if there is none.
  std::string not_finite_input() const;
  // Waits for the tower steps that are under way; there are no others then. Throws the first error
  // of a tower, if there is one.
  void rethrow_failure();

 private:
  void loop(std::size_t tower);
  bool begin(double& rate);
  void end(const TrainingStep& step, Trace* trace);
  void look_at_input(std::int64_t tower, const TrainingStep& step, const Batch& batch);
  void stop();

  const Options options_;
  const std::int64_t towers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t begun_ = 0, ended_ = 0;  // tower steps
  std::int64_t limit_ = 0;              // of begun_
  std::int64_t rounds_ = 0;             // given out
  double rate_ = 0;
  std::vector<MetricTotals> totals_;  // [round % kOpenRounds]
  std::optional<Trace> trace_;
  std::string input_;  // not_finite_input()
  std::exception_ptr error_;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace belfry
