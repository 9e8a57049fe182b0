// Kernels of f32 for tensors of 16 bits: what becomes of a KernelPlan, and of its tensors.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

// Whether a tensor of the plan is f16 or bf16.
bool has_half(const KernelPlan& plan);

// A kernel is prepared for `inputs` and `outputs`, and given tensors in a workspace of `bytes`, in
// front of its own, in place of those of 16 bits. Those that it reads are widened before, those
// that it writes are rounded after: outputs and, of an op that writes, variables.
struct Widened {
  struct Tensor {
    std::size_t index;  // among the inputs, or the outputs
    DType dtype;
    std::int64_t elements;
    std::int64_t offset;  // in the workspace, a multiple of 256
  };

  explicit Widened(const KernelPlan& plan);

  // The pointers of a launch with those in the workspace in place of others.
  void point(const Pointers& p, std::span<void*> in, std::span<void*> out) const;

  std::vector<TensorType> inputs, outputs;
  std::vector<Tensor> read, made;
  std::size_t variables = 0;  // of `read`, these first are written, too
  std::int64_t bytes = 0;
};

}  // namespace belfry
