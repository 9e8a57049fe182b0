// A metric of a tower: numbers that are added up over all samples, or scores that are counted, and
// how these end; and what evaluations add up for means by weights.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/towers/score_table.h"

namespace belfry {

// How sums become a value.
struct MetricEnd {
  // Follows the name of the metric and "_" in the name of the value; "": that is the metric's.
  std::string name;
  // Of the sums over all samples, end to end.
  std::function<double(std::span<const double>)> of;
};

// What Tower::metric() takes; metrics.h makes the common ones.
struct MetricSums {
  // Of any shape that is known, floating point. Each element is a sum over the samples of the
  // tower, as reduce_sum(x, {0}) gives it; in f64 sums hardly round.
  Output sums;
  std::vector<MetricEnd> ends;  // at least one
};

// What Tower::metric() takes for a metric of the order of scores, which no sums can give.
struct MetricScores {
  Output scores, labels;  // of one shape; labels other than 0 and 1 do not count
  // Of all samples, by ascending score. If one that counts is NaN, so is the metric.
  std::function<double(std::span<const ScoreCount>)> of;
};

// A metric as a tower has it.
struct TowerMetric {
  std::string name;
  Output value;  // a scalar that is a mean over the tower's samples; sums; or rows of scores and
                 // labels
  std::vector<MetricEnd> ends;  // of sums
  std::function<double(std::span<const ScoreCount>)> of_scores;

  bool has_scores() const { return static_cast<bool>(of_scores); }
  bool is_mean() const { return ends.empty() && !has_scores(); }
  // The names of its values.
  std::vector<std::string> value_names() const;
};

// A mean by weights over the samples of a tower (weighted_mean.h), with the sums that it is the
// quotient of: f64 [2], of weights times values, and of weights.
struct WeightedSums {
  Output mean, sums;
};

// A loss or mean in which such means occur, as an evaluation adds it up: `rest`, a mean over
// samples, plus each term's factor * sums[0] / sums[1], where the sums are those of all samples.
struct EvaluatedMean {
  struct Term {
    double factor;
    Output sums;
  };
  Output rest;
  std::vector<Term> terms;  // none: the value is `rest`
};

}  // namespace belfry
