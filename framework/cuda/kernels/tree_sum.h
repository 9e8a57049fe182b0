// The canonical K-way sum in registers, with the bits of kernels::tree_sum, tree_mean and
// tree_sum_16.
#pragma once
#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {

// Sums many tensors over all towers. A launch takes as many tensors as its parameter has room for.
class TreeSum {
 public:
  // Input b * towers + t is tensor b of tower t. Outputs b * outputs + k take the sum of tensor b;
  // they may be its inputs or each other. f32 f64 f16 bf16 i32 i64 u8 bool; sums of floating types
  // are divided by `divisor`. Throws InvalidArgument if a launch has no room for one sum's tensors.
  TreeSum(DType dtype, std::size_t towers, std::size_t outputs, int divisor);

  // Adds a tensor to the sums, before the first run.
  void append(std::int64_t elements) { tensors_.append(elements); }
  // Sums the elements in the range of `p`, which counts all tensors end to end.
  void operator()(const KernelPointers& p, KernelQueue& queue) const;

 private:
  DType dtype_;
  std::size_t towers_, outputs_;
  int divisor_;
  EndToEnd tensors_;
};

// Divides tensors of a floating type in place.
void divide(KernelQueue& queue, DType dtype, int divisor, std::span<void* const> tensors,
            std::span<const std::int64_t> elements);

}  // namespace belfry::cuda
