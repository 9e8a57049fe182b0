// What strategies must compute, found without them: for checks of benchmarks.
#pragma once
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/tensor.h"

namespace belfry {

// Inputs for an all-reduce of one tensor, and its result. f32, f64, i32, and f16 and bf16, which
// are summed in f32 and rounded once.
class ReductionOracle {
 public:
  // Throws InvalidArgument for other types, and for the mean of integers.
  ReductionOracle(Shape shape, DType dtype, int towers, Reduction reduction);

  // Tower t's: in [-1, 1), or whole numbers; sums of floating-point numbers depend on their order.
  Tensor input(int tower) const;
  // Elements that are wrong: where the strategy is canonical, that have other bits than the
  // canonical tree gives; else that differ from it by more than sums in another order may.
  std::int64_t wrong(const Tensor& result, bool canonical) const;

 private:
  int towers_;
  Tensor expected_;
};

}  // namespace belfry
