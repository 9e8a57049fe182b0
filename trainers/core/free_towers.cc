#include "belfry/trainers/core/free_towers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "belfry/framework/base/text.h"
#include "belfry/framework/base/threads.h"
#include "belfry/trainers/data/not_finite_input.h"

namespace belfry {
namespace {

// How many rounds may be incomplete, or complete and not given out, at a time.
constexpr std::int64_t kOpenRounds = 2;

}  // namespace

FreeTowers::FreeTowers(Options options)
    : options_(options),
      towers_(std::ssize(options.towers)),
      totals_(kOpenRounds, MetricTotals(options.towers[0].numbers())) {
  try {
    for (std::size_t t = 0; t < options_.towers.size(); ++t)
      threads_.push_back(
          start_thread({cat("tower ", t, " of ", towers_, ", which runs free (async=free)"),
                        "use fewer devices"},
                       [this, t] { loop(t); }));
  } catch (...) {
    stop();
    throw;
  }
}

FreeTowers::~FreeTowers() { stop(); }

void FreeTowers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  threads_.clear();  // joins them
}

void FreeTowers::next(double rate, std::int64_t left, std::span<NamedValue> metrics) {
  std::unique_lock lock(mutex_);
  rate_ = rate;
  limit_ = towers_ * (rounds_ + std::min(left, kOpenRounds));
  changed_.notify_all();
  changed_.wait(lock, [&] { return error_ || ended_ >= towers_ * (rounds_ + 1); });
  if (error_) std::rethrow_exception(error_);
  MetricTotals& totals = totals_[static_cast<std::size_t>(rounds_ % kOpenRounds)];
  totals.finish(metrics);
  totals.clear();
  ++rounds_;
}

std::optional<Trace> FreeTowers::take_trace() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trace_, std::nullopt);
}

std::string FreeTowers::not_finite_input() const {
  const std::lock_guard lock(mutex_);
  return input_;
}

void FreeTowers::rethrow_failure() {
  stop();
  if (error_) std::rethrow_exception(error_);
}

bool FreeTowers::begin(double& rate) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || begun_ < limit_; });
  if (stopped_) return false;
  ++begun_;
  rate = rate_;
  return true;
}

void FreeTowers::end(const TrainingStep& step, Trace* trace) {
  const std::lock_guard lock(mutex_);
  MetricTotals& totals = totals_[static_cast<std::size_t>(ended_ / towers_ % kOpenRounds)];
  totals.add(1, [&](std::span<double> numbers) { numbers_of_runs({&step, 1}, numbers); });
  add_scores_of_runs({&step, 1}, totals.scores());
  if (trace) trace_ = std::move(*trace);
  if (++ended_ % towers_ == 0) changed_.notify_all();
}

void FreeTowers::look_at_input(std::int64_t tower, const TrainingStep& step, const Batch& batch) {
  if (std::isfinite(step.loss()) || !not_finite_input().empty()) return;
  const std::string found =
      belfry::not_finite_input(options_.data, options_.plan, TowerSpan(tower), batch);
  const std::lock_guard lock(mutex_);
  if (input_.empty()) input_ = found;
}

void FreeTowers::loop(std::size_t tower) {
  try {
    TrainingStep& step = options_.towers[tower];
    Prefetcher input(options_.data, options_.plan, options_.start, Prefetcher::kSlots,
                     TowerSpan(static_cast<std::int64_t>(tower)), {}, options_.data_workers);
    for (std::int64_t i = 0; i < options_.steps; ++i) {
      const Batch& batch = input.next();
      double rate;
      if (!begin(rate)) return;
      Trace trace;
      const RunOptions run{.trace = tower == 0 && i == options_.traced ? &trace : nullptr};
      step.run({}, batch.tensors, rate, run);  // on CPUs: nothing is staged
      look_at_input(static_cast<std::int64_t>(tower), step, batch);
      end(step, run.trace);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    stopped_ = true;
    changed_.notify_all();
  }
}

}  // namespace belfry
