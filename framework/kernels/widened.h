// Runs kernels of f32 on tensors of 16 bits: changes a KernelPlan and the tensors of a launch.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

// Whether a tensor of the plan is f16 or bf16.
bool has_half(const KernelPlan& plan);

// A kernel is prepared for `inputs` and `outputs`. Instead of tensors of 16 bits it gets tensors in
// a workspace of `bytes`, in front of its own. The caller first widens the tensors that the kernel
// reads, and afterwards rounds those that it writes: outputs, and variables of an op that writes.
struct Widened {
  struct Tensor {
    std::size_t index;  // among the inputs, or the outputs
    DType dtype;
    std::int64_t rows, columns;  // a dense tensor is one row
    std::int64_t pitch;          // elements from the start of a row to that of the next
    std::int64_t offset;         // in the workspace, a multiple of 256
  };

  // `pitches`: of inputs, then outputs, as in GpuKernelMaker::prepare(). The workspace has room for
  // the padding.
  explicit Widened(const KernelPlan& plan, std::span<const std::int64_t> pitches = {});

  // The pointers of a launch, with tensors in the workspace instead of those of 16 bits.
  void point(const KernelPointers& p, std::span<void*> in, std::span<void*> out) const;

  std::vector<TensorType> inputs, outputs;
  std::vector<Tensor> read, made;
  std::size_t variables = 0;  // this many of `read`, the first ones, are also written
  std::int64_t bytes = 0;
};

}  // namespace belfry
