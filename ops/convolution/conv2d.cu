// Convolution by cuDNN, which pads both sides of an image equally. If that would move windows, or
// make more of them, cuDNN gets a padded copy of the image, and the image's gradient is cut out of
// the copy's. direct_conv2d.cuh computes what cuDNN does not.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/shape_ints.h"
#include "belfry/ops/convolution/conv2d_shape_impl.h"
#include "belfry/ops/convolution/direct_conv2d.cuh"
#include "belfry/ops/convolution/shift_images.cuh"

namespace belfry::cuda {
namespace {

using kernels::ConvShape;
using Kind = Convolution::Kind;

// A call of cuDNN and the copies around it. prepare() returns none if there are too many elements,
// or no elements.
struct Prepared {
  Convolution convolution;
  bool copied;  // x is the padded copy
  Margins pad, cut;
  std::int64_t copy_bytes;  // rounded up to a multiple of 256
};

std::optional<Prepared> prepare(const KernelPlan& plan, Kind kind, const ConvShape& s) {
  const kernels::FilterAxis &v = s.vertical, &h = s.horizontal;
  const bool copied = !v.pads_evenly() || !h.pads_evenly();
  const std::int64_t height = v.in + (copied ? v.before + v.after : 0);
  const std::int64_t width = h.in + (copied ? h.before + h.after : 0);
  const auto x = shape_ints({s.images, height, width, s.in});
  const auto filter = shape_ints({s.out, v.taps, h.taps, s.group_in()});
  const auto y = shape_ints({s.images, v.out, h.out, s.out});
  const auto strides = shape_ints({v.stride, h.stride, v.dilation, h.dilation});
  if (!x || !filter || !y || !strides) return {};
  Prepared prepared{};
  Convolution& c = prepared.convolution;
  c = {.kind = kind, .dtype = plan.dtype(), .x = *x, .filter = *filter, .y = *y};
  if (plan.node().origin().tf32 && c.dtype == DType::kF32) c.compute = Compute::kTf32;
  if (!copied) c.padding = {static_cast<int>(v.before), static_cast<int>(h.before)};
  c.stride = {(*strides)[0], (*strides)[1]};
  c.dilation = {(*strides)[2], (*strides)[3]};
  c.groups = static_cast<int>(s.groups);
  const auto element = static_cast<std::int64_t>(size_of(plan.dtype()));
  prepared.copied = copied;
  prepared.pad = {s.images, v.in, h.in, height, width, -v.before, -h.before, s.in * element};
  prepared.cut = {s.images, height, width, v.in, h.in, v.before, h.before, s.in * element};
  if (copied) prepared.copy_bytes = (s.images * height * width * s.in * element + 255) / 256 * 256;
  return prepared;
}

// The kernel by cuDNN; empty if cuDNN does not compute this.
QueueRun by_library(KernelPlan& plan, Algorithms& algorithms, Kind kind, const ConvShape& s) {
  const std::optional<Prepared> prepared = prepare(plan, kind, s);
  if (!prepared) return {};
  const auto algorithm = algorithms.convolution(prepared->convolution);
  if (!algorithm) return {};
  plan.workspace(prepared->copy_bytes + algorithm->workspace_bytes);
  return
      [prepared = *prepared, algorithm = *algorithm](const KernelPointers& p, KernelQueue& queue) {
        std::byte* const copy = p.workspace();
        ConvolutionCall call{.convolution = prepared.convolution,
                             .algorithm = algorithm,
                             .first = p.input<void>(0),
                             .second = p.input<void>(1),
                             .out = p.output<void>(),
                             .workspace = p.workspace() + prepared.copy_bytes};
        const bool gives_x = prepared.convolution.kind == Kind::kGradInput;
        if (prepared.copied && gives_x) call.out = copy;
        if (prepared.copied && !gives_x) {
          shift_images(queue, prepared.pad, call.first, copy);
          call.first = copy;
        }
        queue.convolve(call);
        if (prepared.copied && gives_x) shift_images(queue, prepared.cut, copy, p.output<void>());
      };
}

template <template <class> class Direct>
QueueRun prepare_with(KernelPlan& plan, Algorithms& algorithms, Kind kind, const ConvShape& s) {
  if (QueueRun run = by_library(plan, algorithms, kind, s)) return run;
  if (is_half(plan.dtype())) return {};
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s](const KernelPointers& p, KernelQueue& queue) {
      const Direct<T> kernel{s, p.input<T>(0), p.input<T>(1), p.output<T>()};
      launch(queue, kernel, kernel.grid());
    };
  });
}

QueueRun prepare_conv2d(KernelPlan& plan, Algorithms& algorithms) {
  return prepare_with<DirectConv2d>(plan, algorithms, Kind::kForward, kernels::forward_shape(plan));
}
QueueRun prepare_grad_input(KernelPlan& plan, Algorithms& algorithms) {
  return prepare_with<DirectConv2dGradInput>(plan, algorithms, Kind::kGradInput,
                                             kernels::grad_input_shape(plan));
}
QueueRun prepare_grad_filter(KernelPlan& plan, Algorithms& algorithms) {
  return prepare_with<DirectConv2dGradFilter>(plan, algorithms, Kind::kGradFilter,
                                              kernels::grad_filter_shape(plan));
}

}  // namespace

const GpuKernel conv2d(kConv2d, prepare_conv2d);
const GpuKernel conv2d_grad_input(kConv2dGradInput, prepare_grad_input);
const GpuKernel conv2d_grad_filter(kConv2dGradFilter, prepare_grad_filter);

}  // namespace belfry::cuda
