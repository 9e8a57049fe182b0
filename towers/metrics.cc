#include "belfry/towers/metrics.h"

#include <cmath>
#include <limits>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/class_counts.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/square.h"

namespace belfry {

std::vector<std::string> TowerMetric::value_names() const {
  if (ends.empty()) return {name};
  std::vector<std::string> names;
  for (const MetricEnd& end : ends)
    names.push_back(end.name.empty() ? name : cat(name, "_", end.name));
  return names;
}

namespace metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Sums = std::span<const double>;

Output in_64_bits(Output x) { return x.dtype() == DType::kF64 ? x : cast(x, DType::kF64); }

// The sums of all elements of each, one after the other.
Output totals(std::initializer_list<Output> all) {
  std::vector<Output> rows;
  for (const Output& x : all) {
    require(x.shape().rank() > 0, x.node().describe(), ", ", x.type(),
            ", has no dimension of samples that a metric can add up");
    rows.push_back(reshape(reduce_sum(in_64_bits(x)), {1}));
  }
  return concat(rows, 0);
}

// A one for each element that is finite.
Output ones(Output x) { return in_64_bits(x) * 0.0 + 1.0; }

MetricSums one_value(Output sums, std::function<double(Sums)> end) {
  return {.sums = sums, .ends = {{.name = "", .of = std::move(end)}}};
}

// 0 / 0 is 0.
double share(double part, double all) { return all == 0 ? 0 : part / all; }

// How a value comes from the counts of a label, a prediction, and both.
using ValueOfCounts = double (*)(double labels, double predictions, double right);

double precision_of(double, double predictions, double right) { return share(right, predictions); }
double recall_of(double labels, double, double right) { return share(right, labels); }
double f1_of(double labels, double predictions, double right) {
  return share(2 * right, labels + predictions);
}

// `counts`: those of ClassCountsOf::kClasses.
double averaged(Sums counts, Average average, ValueOfCounts value) {
  const std::size_t classes = counts.size() / 3;
  double sum = 0, weights = 0, labels = 0, predictions = 0, right = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    const double of[] = {counts[c], counts[classes + c], counts[2 * classes + c]};
    labels += of[0];
    predictions += of[1];
    right += of[2];
    const bool occurs = of[0] + of[1] > 0;
    const double weight = average == Average::kWeighted ? of[0] : occurs ? 1 : 0;
    sum += weight * value(of[0], of[1], of[2]);
    weights += weight;
  }
  if (labels == 0) return kNaN;
  return average == Average::kMicro ? value(labels, predictions, right) : sum / weights;
}

MetricSums of_classes(Output logits, Output labels, Average average, ValueOfCounts value, At at) {
  return one_value(class_counts(logits, labels, {}, at),
                   [=](Sums counts) { return averaged(counts, average, value); });
}

MetricSums of_threshold(Output scores, Output labels, double threshold, ValueOfCounts value,
                        At at) {
  require(std::isfinite(threshold), "a metric (", at.site, ") has the threshold ", threshold,
          ", which is not finite");
  enum { kRightZero, kWrongOne, kWrongZero, kRightOne };  // predictions
  return one_value(
      score_counts(scores, labels, {.buckets = 2, .low = threshold, .high = threshold}, at),
      [value](Sums n) {
        if (std::isnan(n[0])) return kNaN;
        return value(n[kWrongZero] + n[kRightOne], n[kWrongOne] + n[kRightOne], n[kRightOne]);
      });
}

double area_under_curve(std::span<const ScoreCount> counts) {
  double zeros_below = 0, ones = 0, ordered = 0;  // ordered pairs; equal ones count half
  for (const ScoreCount& count : counts) {
    ordered += count.ones * (zeros_below + count.zeros / 2);
    zeros_below += count.zeros;
    ones += count.ones;
  }
  return ordered / (zeros_below * ones);
}

}  // namespace

MetricSums ratio(Output above, Output below, At at) {
  const SiteScope site(above.graph(), at.site);
  return one_value(totals({above, below}), [](Sums n) { return n[1] == 0 ? kNaN : n[0] / n[1]; });
}

MetricSums mean(Output x, At at) {
  const SiteScope site(x.graph(), at.site);
  return one_value(totals({x, ones(x)}), [](Sums n) { return n[0] / n[1]; });
}

MetricSums root_mean_square(Output x, At at) {
  const SiteScope site(x.graph(), at.site);
  return one_value(totals({square(in_64_bits(x)), ones(x)}),
                   [](Sums n) { return std::sqrt(n[0] / n[1]); });
}

MetricSums perplexity(Output losses, At at) {
  const SiteScope site(losses.graph(), at.site);
  return one_value(totals({losses, ones(losses)}), [](Sums n) { return std::exp(n[0] / n[1]); });
}

MetricSums dice(Output prediction, Output truth, At at) {
  const SiteScope site(prediction.graph(), at.site);
  const Output x = in_64_bits(prediction), y = in_64_bits(truth);
  return one_value(totals({x * y, x, y}), [](Sums n) { return 2 * n[0] / (n[1] + n[2]); });
}

MetricSums top_k(Output logits, Output labels, int k, At at) {
  return one_value(class_counts(logits, labels, {.of = ClassCountsOf::kTopK, .k = k}, at),
                   [](Sums n) { return n[0] / n[1]; });
}

MetricSums precision(Output logits, Output labels, Average average, At at) {
  return of_classes(logits, labels, average, precision_of, at);
}

MetricSums recall(Output logits, Output labels, Average average, At at) {
  return of_classes(logits, labels, average, recall_of, at);
}

MetricSums f1(Output logits, Output labels, Average average, At at) {
  return of_classes(logits, labels, average, f1_of, at);
}

MetricSums confusion_matrix(Output logits, Output labels, At at) {
  constexpr std::int64_t kMostClasses = 32;
  MetricSums result{.sums = class_counts(logits, labels, {.of = ClassCountsOf::kConfusion}, at),
                    .ends = {}};
  const std::int64_t classes = result.sums.shape()[0];
  require(classes <= kMostClasses, "a confusion matrix (", at.site, ") of ", classes,
          " classes would have ", classes * classes, " values; at most ", kMostClasses,
          " classes have one. Use metrics::f1, or counts of your own (class_counts)");
  for (std::int64_t label = 0; label < classes; ++label)
    for (std::int64_t prediction = 0; prediction < classes; ++prediction)
      result.ends.push_back(
          {.name = cat(label, "_", prediction),
           .of = [index = static_cast<std::size_t>(label * (classes + 1) + prediction)](
                     Sums counts) { return counts[index]; }});
  return result;
}

MetricSums binary_precision(Output scores, Output labels, double threshold, At at) {
  return of_threshold(scores, labels, threshold, precision_of, at);
}

MetricSums binary_recall(Output scores, Output labels, double threshold, At at) {
  return of_threshold(scores, labels, threshold, recall_of, at);
}

MetricSums binary_f1(Output scores, Output labels, double threshold, At at) {
  return of_threshold(scores, labels, threshold, f1_of, at);
}

MetricScores auc(Output scores, Output labels) {
  return {.scores = scores, .labels = labels, .of = area_under_curve};
}

}  // namespace metrics
}  // namespace belfry
