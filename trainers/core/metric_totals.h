// The loss and metrics of several towers, batches and processes, added up in one order.
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/group/processes.h"
#include "belfry/framework/kernels/plain.h"
#include "belfry/towers/replicate.h"

namespace belfry {

struct NamedValue {
  std::string name;
  double value = 0;
};

// The mean of value(0), ..., value(towers - 1), which towers have computed in `dtype`: added along
// the canonical tree in f32, or f64 if that is the type. So it has the bits of the mean that one
// tower computes over all rows, if their number and that of towers are powers of two.
template <class F>
double tower_mean(std::size_t towers, DType dtype, const F& value) {
  const auto n = static_cast<std::int64_t>(towers);
  const auto of = [&](std::int64_t t) { return value(static_cast<std::size_t>(t)); };
  const double total = dtype == DType::kF64
                           ? kernels::plain_tree<double>(0, n, of)
                           : static_cast<double>(kernels::plain_tree<float>(0, n, of));
  return total / static_cast<double>(towers);
}

// What a tower reports: its loss, then its metrics (add_fetches()), as numbers end to end. A loss
// and a mean have one number, sums have one for each element. Scores are no such numbers: they go
// into a table (ScoreTable). In evaluations a loss or mean may be
// followed by weighted means that are added to it (TowerRecord::evaluated), as two sums each.
class MetricNumbers {
 public:
  struct Part {
    std::string name;
    DType dtype;
    std::size_t first, count;     // numbers
    std::vector<MetricEnd> ends;  // of sums; empty for a mean
    double factor = 0;            // of a weighted mean that is added to the value before; else 0
    // Of scores, which have no numbers.
    std::function<double(std::span<const ScoreCount>)> of_scores = {};

    bool is_term() const { return factor != 0; }
    bool has_scores() const { return static_cast<bool>(of_scores); }
    bool is_mean() const { return ends.empty() && !is_term() && !has_scores(); }
    // A number of several towers, of(t) being that of tower t: the mean, or the sum. Towers have as
    // many samples each.
    template <class F>
    double combine(std::size_t towers, const F& of) const {
      if (is_mean()) return tower_mean(towers, dtype, of);
      return kernels::plain_tree<double>(0, static_cast<std::int64_t>(towers), [&](std::int64_t t) {
        return of(static_cast<std::size_t>(t));
      });
    }
    // The same, where tower t has samples[t] samples. It counts if there are any.
    template <class F>
    double combine(std::span<const double> samples, const F& of) const {
      double sum = 0, all = 0;
      for (std::size_t t = 0; t < samples.size(); ++t) {
        if (samples[t] == 0) continue;
        sum += is_mean() ? samples[t] * of(t) : of(t);
        all += samples[t];
      }
      return is_mean() ? sum / all : sum;
    }
  };

  explicit MetricNumbers(const TowerRecord& tower);

  std::span<const Part> parts() const { return parts_; }
  // Of a tower.
  std::size_t count() const { return parts_.back().first + parts_.back().count; }
  // The names of the values that they end in: "loss" first.
  std::vector<std::string> value_names() const;

 private:
  std::vector<Part> parts_;
};

// Adds up the numbers of batches, and ends them. Nothing but scores allocates between the
// constructor and finish().
class MetricTotals {
 public:
  explicit MetricTotals(MetricNumbers numbers);

  const MetricNumbers& numbers() const { return numbers_; }
  void clear();
  // Adds a batch whose combined numbers fill(std::span<double>) writes. Its means count with
  // `weight`.
  template <class F>
  void add(double weight, const F& fill) {
    fill(std::span(batch_));
    add_batch(weight);
  }
  // A table for each metric of scores, in their order; of this process.
  std::span<ScoreTable> scores() { return scores_; }
  // Adds the scores of all processes to those of this one. All call it, with the same metrics.
  void gather_scores(Processes* processes);
  // The value of each name of value_names(), of all batches since clear(): weighted means, and ends
  // of sums and scores. The number of values is theirs.
  void finish(std::span<NamedValue> values);

 private:
  void add_batch(double weight);

  MetricNumbers numbers_;
  std::vector<double> batch_, totals_;
  std::vector<ScoreTable> scores_;
  double weight_ = 0;
};

// NaN for each name of value_names().
std::vector<NamedValue> no_values(const MetricNumbers& numbers);

}  // namespace belfry
