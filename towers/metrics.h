// Common metrics that are no means over samples:
//   tower.metric("f1", metrics::f1(logits, label));
// All of them add up over all devices, processes and batches before they end, so they have one
// value, however the samples were divided.
#pragma once
#include <cstdint>

#include "belfry/towers/metric.h"

namespace belfry::metrics {

// The sum of all elements of `above` over that of `below`; each has its samples in dimension 0. NaN
// if the latter is 0.
MetricSums ratio(Output above, Output below, At at = {});
// The mean of all elements. Unlike a mean that the tower function computes, it may come from
// batches of any sizes, and is summed in f64.
MetricSums mean(Output x, At at = {});
// The root of the mean of their squares, such as that of errors.
MetricSums root_mean_square(Output x, At at = {});
// exp() of the mean, of the losses of samples or tokens, such as sparse_softmax_cross_entropy()
// gives them.
MetricSums perplexity(Output losses, At at = {});
// 2 sum(x y) / (sum(x) + sum(y)): how far a prediction and the truth overlap, both from 0 to 1. NaN
// if both are empty.
MetricSums dice(Output prediction, Output truth, At at = {});

// Of classifiers: logits [n, c] and labels [n] as accuracy() takes them. Rows whose label is no
// class, such as -1, do not count.

// The share of rows whose label is among the k largest logits.
MetricSums top_k(Output logits, Output labels, int k, At at = {});

// How the values of classes become one.
enum class Average : std::uint8_t {
  kMacro,     // their mean, over classes that occur as label or prediction
  kWeighted,  // their mean, by how often each class is a label
  kMicro,     // the value of all classes' counts together
};
// A class without predictions has precision 0, and one without labels has recall 0.
MetricSums precision(Output logits, Output labels, Average average = Average::kMacro, At at = {});
MetricSums recall(Output logits, Output labels, Average average = Average::kMacro, At at = {});
MetricSums f1(Output logits, Output labels, Average average = Average::kMacro, At at = {});

// A value "<metric>_<label>_<prediction>" for each pair of classes: so many rows. Rows whose logits
// have a NaN are in none. At most 32 classes.
MetricSums confusion_matrix(Output logits, Output labels, At at = {});

// Of scores and labels 0 or 1, of one shape. Those with other labels do not count.

// Scores that are at least the threshold predict 1. NaN if a score is.
MetricSums binary_precision(Output scores, Output labels, double threshold = 0.5, At at = {});
MetricSums binary_recall(Output scores, Output labels, double threshold = 0.5, At at = {});
MetricSums binary_f1(Output scores, Output labels, double threshold = 0.5, At at = {});

// The area under the ROC curve: the probability that a random 1 has a higher score than a random 0,
// where equal scores count one half. NaN if one of the labels does not occur. It is exact for up to
// a million different scores (ScoreTable). Beyond those, scores whose first bits agree are equal.
MetricScores auc(Output scores, Output labels);

}  // namespace belfry::metrics
