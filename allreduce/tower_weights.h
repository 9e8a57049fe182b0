// The weights of towers (ReduceOptions::weights).
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Throws InvalidArgument unless there is one scalar weight per tower, at least 0 where its value is
// known, or none. With several processes, weights need their sum over all.
void require_weights(const GradientTable& grads, const ReduceOptions& options, SourceLine site);
// Whether weights may change the result. Those that are known to be one number do not, if that is 1
// or a mean divides by it. Of several processes, none knows the weights of the others.
bool weights_matter(const GradientTable& grads, const ReduceOptions& options);

// Applies the weights in one call of Strategy::reduce(), or of a function in its place. Borrows
// table and options.
class TowerWeights {
 public:
  TowerWeights(const GradientTable& grads, const ReduceOptions& options)
      : grads_(grads), options_(options) {}

  // The table to be summed: each gradient times the weight n of its tower, or 0 if n is 0; on the
  // tower's device. The mean of a tower that is alone is its gradients, or 0 if its weight is 0. (n
  // * g / n has other bits.)
  GradientTable applied();
  // Sums of these divided by the sum of all weights, or 0 if that sum is 0.
  OutputRows means(const GradientTable& sums);
  Output mean_of(Output sum);

 private:
  Output of(int t, DType dtype);
  Output total(DType dtype);

  const GradientTable& grads_;
  const ReduceOptions& options_;
  std::map<std::pair<int, DType>, Output> cast_;  // tower -1: the sum
};

}  // namespace belfry
