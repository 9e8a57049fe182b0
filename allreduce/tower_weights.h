#pragma once
#include <map>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Applies ReduceOptions::weights in one call of Strategy::reduce(), or of a function that replaces
// it. Borrows table and options.
class TowerWeights {
 public:
  TowerWeights(const GradientTable& grads, const ReduceOptions& options)
      : grads_(grads), options_(options) {}

  // [t][v]: each gradient times the weight n of its tower, or 0 if n is 0; on the tower's device.
  std::vector<std::vector<Output>> leaves();
  // The leaves of a single tower: its gradients, or 0 if its weight is 0. (n * g / n has other
  // bits.)
  std::vector<std::vector<Output>> counted();
  // A sum of leaves divided by the sum of all weights, or 0 if that sum is 0.
  Output mean_of(Output sum);

 private:
  template <class F>
  std::vector<std::vector<Output>> each(const F& make);
  Output of(int t, DType dtype);
  Output total(DType dtype);

  const GradientTable& grads_;
  const ReduceOptions& options_;
  std::map<std::pair<int, DType>, Output> cast_;  // tower -1: the sum
};

}  // namespace belfry
