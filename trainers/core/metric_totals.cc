#include "belfry/trainers/core/metric_totals.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/text.h"

namespace belfry {

MetricNumbers::MetricNumbers(const TowerRecord& tower) {
  const auto add_terms = [&](std::size_t value) {
    if (tower.evaluated.empty()) return;
    for (const EvaluatedMean::Term& term : tower.evaluated[value].terms)
      parts_.push_back({"", DType::kF64, count(), 2, {}, term.factor});
  };
  parts_.push_back({"loss", tower.loss.dtype(), 0, 1, {}});
  add_terms(0);
  for (std::size_t m = 0; m < tower.metrics.size(); ++m) {
    const TowerMetric& metric = tower.metrics[m];
    const std::int64_t size = metric.has_scores() ? 0 : metric.value.shape().elements();
    parts_.push_back({metric.name, metric.value.dtype(), count(), static_cast<std::size_t>(size),
                      metric.ends, 0, metric.of_scores});
    add_terms(m + 1);
  }
}

std::vector<std::string> MetricNumbers::value_names() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (part.is_term()) continue;
    for (std::string& name : TowerMetric{part.name, {}, part.ends, {}}.value_names())
      names.push_back(std::move(name));
  }
  return names;
}

MetricTotals::MetricTotals(MetricNumbers numbers)
    : numbers_(std::move(numbers)),
      batch_(numbers_.count()),
      totals_(numbers_.count()),
      scores_(static_cast<std::size_t>(
          std::ranges::count_if(numbers_.parts(), &MetricNumbers::Part::has_scores))) {}

void MetricTotals::clear() {
  std::ranges::fill(totals_, 0);
  for (ScoreTable& table : scores_) table.clear();
  weight_ = 0;
}

void MetricTotals::add_batch(double weight) {
  for (const MetricNumbers::Part& part : numbers_.parts())
    for (std::size_t i = part.first; i < part.first + part.count; ++i)
      totals_[i] += part.is_mean() ? weight * batch_[i] : batch_[i];
  weight_ += weight;
}

void MetricTotals::gather_scores(Processes* processes) {
  if (!processes || scores_.empty()) return;
  std::string own;
  for (ScoreTable& table : scores_) {
    table.write(own);
    table.clear();
  }
  for (const std::string& of_process : processes->gather(own))
    for (std::string_view bytes = of_process; ScoreTable & table : scores_) table.read(bytes);
}

namespace {

// What `end` returns, for the value of this name.
template <class F>
double ended(const std::string& name, const F& end) try {
  return end();
} catch (...) {
  rethrow_from({.what = cat("the end of the metric '", name, "'")});
}

}  // namespace

void MetricTotals::finish(std::span<NamedValue> values) {
  std::size_t v = 0, table = 0;
  for (const MetricNumbers::Part& part : numbers_.parts()) {
    if (part.is_mean()) values[v++].value = totals_[part.first] / weight_;
    if (part.is_term())
      values[v - 1].value += part.factor * (totals_[part.first] / totals_[part.first + 1]);
    for (const MetricEnd& end : part.ends) {
      NamedValue& value = values[v++];
      value.value = ended(
          value.name, [&] { return end.of(std::span(totals_).subspan(part.first, part.count)); });
    }
    if (part.has_scores()) {
      NamedValue& value = values[v++];
      ScoreTable& scores = scores_[table++];
      value.value = scores.has_nan()
                        ? std::numeric_limits<double>::quiet_NaN()
                        : ended(value.name, [&] { return part.of_scores(scores.counts()); });
    }
  }
}

std::vector<NamedValue> no_values(const MetricNumbers& numbers) {
  std::vector<NamedValue> values;
  for (std::string& name : numbers.value_names())
    values.push_back({std::move(name), std::numeric_limits<double>::quiet_NaN()});
  return values;
}

}  // namespace belfry
