#include "belfry/framework/plan_kernels/host_kernel.h"

#include <atomic>
#include <memory>
#include <span>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/node.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/framework/kernels/widened.h"

namespace belfry {
namespace {

void say_once(DType dtype) {
  static std::atomic<bool> said[2];
  if (!said[dtype == DType::kF16].exchange(true))
    log_info(name_of(dtype),
             " runs through the reference kernels on CPUs, which compute in f32: far slower than "
             "f32 itself");
}

// Widens f16 and bf16 to f32 if an op's kernels do not take them. A launch does all of its node's
// work. Its workspace holds the widened tensors, pointers to the tensors of the f32 kernel, and
// that kernel's workspace.
class HalfKernel {
 public:
  HalfKernel(KernelPlan& plan, std::span<const std::int64_t> pitches)
      : tensors_(plan, pitches),
        whole_(plan.range()),
        inner_workspace_(tensors_.bytes + bytes_of_pointers(plan.inputs() + plan.outputs())) {
    const Op& op = plan.op();
    require<InternalError>(op.reference && !op.collective, plan.node().describe(),
                           ": no host kernel for 16 bits");
    KernelPlan wide(plan.node(), tensors_.inputs, tensors_.outputs, plan.range());
    wide.set_op(op);
    wide.set_batch(plan.batch());
    run_ = op.reference(wide);
    plan.workspace(inner_workspace_ + wide.workspace_bytes());
    for (const auto* list : {&tensors_.read, &tensors_.made})
      for (const Widened::Tensor& tensor : *list) say_once(tensor.dtype);
  }

  void operator()(const KernelPointers& p) const {
    require<InternalError>(p.begin() == whole_.begin && p.end() == whole_.end,
                           "a launch of 16 bits was divided, whose kernel widens whole tensors");
    auto* const pointers = reinterpret_cast<void**>(p.workspace() + tensors_.bytes);
    const std::span inputs(pointers, p.inputs()), outputs(pointers + p.inputs(), p.outputs());
    tensors_.point(p, inputs, outputs);
    for (const Widened::Tensor& tensor : tensors_.read)
      widen(p, p.input<std::uint16_t>(tensor.index), tensor);
    run_(KernelPointers(inputs, outputs, p.workspace() + inner_workspace_, {p.begin(), p.end()},
                        p.step(), p.first_row()));
    for (std::size_t i = 0; i < tensors_.variables; ++i)
      narrow(p, tensors_.read[i], p.written<std::uint16_t>(tensors_.read[i].index));
    for (const Widened::Tensor& tensor : tensors_.made)
      narrow(p, tensor, p.output<std::uint16_t>(tensor.index));
  }

 private:
  static std::int64_t bytes_of_pointers(std::size_t count) {
    constexpr std::size_t kAlignment = 256;  // of the workspace after the pointers
    return static_cast<std::int64_t>((count * sizeof(void*) + kAlignment - 1) / kAlignment *
                                     kAlignment);
  }
  template <class T>
  static T* at(const KernelPointers& p, const Widened::Tensor& tensor) {
    return reinterpret_cast<T*>(p.workspace() + tensor.offset);
  }
  // Widened tensors are dense.
  static void widen(const KernelPointers& p, const std::uint16_t* from, const Widened::Tensor& to) {
    for (std::int64_t row = 0; row < to.rows; ++row)
      kernels::half_conversion(to.dtype).widen(from + row * to.pitch,
                                               at<float>(p, to) + row * to.columns, to.columns);
  }
  static void narrow(const KernelPointers& p, const Widened::Tensor& from, std::uint16_t* to) {
    for (std::int64_t row = 0; row < from.rows; ++row)
      kernels::half_conversion(from.dtype)
          .narrow(at<float>(p, from) + row * from.columns, to + row * from.pitch, from.columns);
  }

  Widened tensors_;
  WorkRange whole_;
  std::int64_t inner_workspace_;
  KernelRun run_;
};

}  // namespace

KernelRun prepare_kernel(KernelPlan& kernel, bool reference,
                         std::span<const std::int64_t> pitches) {
  const Op& op = kernel.op();
  require<InternalError>(pitches.empty() || !op.half, kernel.node().describe(),
                         ": its host kernel takes no padded rows");
  if (!op.half && has_half(kernel))
    return [half = std::make_shared<const HalfKernel>(kernel, pitches)](const KernelPointers& p) {
      (*half)(p);
    };
  if (op.cpu && !(reference && op.reference))
    if (KernelRun run = op.cpu(kernel)) return run;
  require<NotFoundError>(op.reference != nullptr, kernel.node().describe(), ": no host kernel for ",
                         name_of(kernel.dtype()));
  kernel.workspace(0);
  return op.reference(kernel);
}

}  // namespace belfry
