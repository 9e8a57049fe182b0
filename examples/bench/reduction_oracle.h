// The results that strategies must compute, found without them, for checks of benchmarks.
#pragma once
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/tensor.h"

namespace belfry {

// Inputs for an all-reduce of one tensor, and its result. f32, f64, i32, f16 and bf16; the 16-bit
// types are summed in f32 and rounded once.
class ReductionOracle {
 public:
  // Throws InvalidArgument for other types, and for the mean of integers.
  ReductionOracle(Shape shape, DType dtype, int towers, Reduction reduction);

  // A tower's input, in [-1, 1), or whole numbers. Sums of its floating-point numbers depend on
  // their order.
  Tensor input(int tower) const;
  // The number of wrong elements. If the strategy is canonical, they have other bits than the
  // canonical tree's; else they differ from it by more than another order of sums permits.
  std::int64_t wrong(const Tensor& result, bool canonical) const;

 private:
  int towers_;
  Tensor expected_;
};

}  // namespace belfry
