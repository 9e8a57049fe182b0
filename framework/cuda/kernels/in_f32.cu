#include <memory>

#include "belfry/framework/cuda/kernels/cast.h"
#include "belfry/framework/cuda/kernels/in_f32.h"
#include "belfry/framework/kernels/widened.h"

namespace belfry::cuda {
namespace {

class InF32 {
 public:
  InF32(Widened tensors, QueueRun run)
      : tensors_(std::move(tensors)),
        run_(std::move(run)),
        inputs_(tensors_.inputs.size()),
        outputs_(tensors_.outputs.size()) {}

  void operator()(const KernelPointers& p, KernelQueue& queue) {
    tensors_.point(p, inputs_, outputs_);
    for (const Widened::Tensor& tensor : tensors_.read)
      cast(queue, tensor.dtype, p.input<void>(tensor.index), DType::kF32, at(p, tensor), 0,
           tensor.rows * tensor.pitch);
    // Kernels read the step from their GPU's memory.
    run_(KernelPointers(inputs_, outputs_, p.workspace() + tensors_.bytes, {p.begin(), p.end()}, 0,
                        p.first_row()),
         queue);
    for (std::size_t i = 0; i < tensors_.variables; ++i) {
      const Widened::Tensor& tensor = tensors_.read[i];
      narrow(queue, p, tensor, p.written<void>(tensor.index));
    }
    for (const Widened::Tensor& tensor : tensors_.made)
      narrow(queue, p, tensor, p.output<void>(tensor.index));
  }

 private:
  static float* at(const KernelPointers& p, const Widened::Tensor& tensor) {
    return reinterpret_cast<float*>(p.workspace() + tensor.offset);
  }
  static void narrow(KernelQueue& queue, const KernelPointers& p, const Widened::Tensor& tensor,
                     void* to) {
    cast(queue, DType::kF32, at(p, tensor), tensor.dtype, to, 0, tensor.rows * tensor.pitch);
  }

  Widened tensors_;
  QueueRun run_;
  std::vector<void*> inputs_, outputs_;  // of the launch that is enqueued
};

}  // namespace

QueueRun in_f32(KernelPlan& plan, std::span<const std::int64_t> pitches,
                const std::function<QueueRun(KernelPlan&)>& prepare) {
  Widened tensors(plan, pitches);
  KernelPlan wide(plan.node(), tensors.inputs, tensors.outputs, plan.range());
  wide.set_op(plan.op());
  wide.set_batch(plan.batch());
  QueueRun run = prepare(wide);
  if (!run) return {};
  plan.workspace(tensors.bytes + wide.workspace_bytes());
  return [kernel = std::make_shared<InF32>(std::move(tensors), std::move(run))](
             const KernelPointers& p, KernelQueue& queue) { (*kernel)(p, queue); };
}

}  // namespace belfry::cuda
