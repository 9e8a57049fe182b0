// The canonical K-way sum in registers: bits of kernels::tree_sum, tree_mean and tree_sum_16.
#pragma once
#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/graph/kernel.h"

namespace belfry::cuda {

// Sums of many tensors, each over as many towers, in as few launches as there is room for pointers
// in their parameters.
class TreeSum {
 public:
  // Input b * towers + t is tensor b of tower t; it has `outputs` outputs in the same order, which
  // may be its inputs or each other. f32 f64 f16 bf16 i32 i64 u8 bool; sums of floating types are
  // divided by `divisor`. Refuses more tensors of one sum than a launch takes.
  TreeSum(DType dtype, std::size_t towers, std::size_t outputs, int divisor);

  // Adds a tensor to the sums, before the first run.
  void append(std::int64_t elements) { tensors_.append(elements); }
  // Of the tensors' elements, end to end, those in the range of `p`.
  void operator()(const Pointers& p, KernelQueue& queue) const;

 private:
  DType dtype_;
  std::size_t towers_, outputs_;
  int divisor_;
  EndToEnd tensors_;
};

// Divides tensors of a floating type where they are.
void divide(KernelQueue& queue, DType dtype, int divisor, std::span<void* const> tensors,
            std::span<const std::int64_t> elements);

}  // namespace belfry::cuda
