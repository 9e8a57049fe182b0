#include <memory>

#include "belfry/framework/cuda/kernels/in_f32.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/kernels/half_bits.h"
#include "belfry/framework/kernels/widened.h"

namespace belfry::cuda {
namespace {

using kernels::Stored;

// Converts between f32 and a 16-bit type.
template <class From, class To>
struct Convert {
  using Shared = Nothing;
  std::int64_t count;
  const From* from;
  To* to;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index * block.threads + thread;
      if (i < count) to[i] = Stored<To>::narrow(Stored<From>::widen(from[i]));
    });
  }
};

template <class F>
void visit_half(DType dtype, const F& f) {
  if (dtype == DType::kF16)
    f(kernels::F16{});
  else
    f(kernels::BF16{});
}

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
      visit_half(tensor.dtype, [&]<class T>(T) {
        launch(queue, Convert<T, float>{tensor.elements, p.input<T>(tensor.index), at(p, tensor)},
               grid_for(tensor.elements));
      });
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
    visit_half(tensor.dtype, [&]<class T>(T) {
      launch(queue, Convert<float, T>{tensor.elements, at(p, tensor), static_cast<T*>(to)},
             grid_for(tensor.elements));
    });
  }

  Widened tensors_;
  QueueRun run_;
  std::vector<void*> inputs_, outputs_;  // of the launch that is enqueued
};

}  // namespace

QueueRun in_f32(KernelPlan& plan, const std::function<QueueRun(KernelPlan&)>& prepare) {
  Widened tensors(plan);
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
