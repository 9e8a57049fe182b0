// Kernels that take tensors of 16 bits with padded rows, as plans make them for products
// (passes/pad_rows.cc):
//
//   const PitchedKernel matmul_rows(kMatMul, prepare_matmul);
#pragma once
#include <span>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"

namespace belfry::cuda {

// The pitches of a launch, as in GpuKernelMaker::prepare().
struct Pitches {
  std::span<const std::int64_t> all;

  // Elements from the start of a row to that of the next, also for dense tensors. Not for scalars.
  std::int64_t input(const KernelPlan& plan, std::size_t i) const { return at(i, plan.input(i)); }
  std::int64_t output(const KernelPlan& plan, std::size_t i = 0) const {
    return at(plan.inputs() + i, plan.output(i));
  }

 private:
  std::int64_t at(std::size_t number, const TensorType& type) const {
    return all.empty() || all[number] == 0 ? type.shape.back() : all[number];
  }
};

using PitchedPrepare = QueueRun (*)(KernelPlan&, Algorithms&, const Pitches&);

// `prepare` is called for all types, as that of kTakesHalf.
struct PitchedKernel {
  PitchedKernel(const Op& op, PitchedPrepare prepare);
};

// As without pitches, which the kernel of the op must take.
QueueRun prepare_gpu_kernel(KernelPlan& plan, Algorithms& algorithms, const Pitches& pitches);

// Whether the kernel of the op is a PitchedKernel.
bool takes_pitches(const Op& op);

}  // namespace belfry::cuda
