// How classifiers end.
#pragma once
#include "belfry/ops/accuracy.h"
#include "belfry/ops/sparse_softmax_cross_entropy.h"
#include "belfry/towers/tower.h"

namespace belfry::models {

// Sets the output "logits" and the metric "accuracy"; returns the mean cross entropy.
inline Output classify(Tower& tower, Output logits, Output label, double label_smoothing) {
  tower.output("logits", logits);
  tower.metric("accuracy", accuracy(logits, label));
  return cross_entropy(logits, label, {.smoothing = label_smoothing});
}

}  // namespace belfry::models
