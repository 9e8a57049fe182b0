// What ReduceOptions::weights make of the gradients of towers.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Of one call of Strategy::reduce() or what stands for it. Borrows table and options.
class TowerWeights {
 public:
  TowerWeights(const GradientTable& grads, const ReduceOptions& options)
      : grads_(grads), options_(options) {}

  // [t][v]: each gradient times the weight of its tower, and 0 where that is 0; on the tower's
  // device.
  std::vector<std::vector<Output>> leaves();
  // The same of one tower that is alone, whose mean is its gradient: n * g / n is not.
  std::vector<std::vector<Output>> counted();
  // A sum of leaves divided by the sum of all weights; 0 if that is 0.
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
