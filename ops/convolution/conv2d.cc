#include "belfry/ops/convolution/conv2d.h"

#include "belfry/framework/graph/op_work.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/convolution/conv2d_impl.h"
#include "belfry/ops/convolution/conv2d_shape_impl.h"
#include "belfry/ops/convolution/stored_window_impl.h"

namespace belfry {
namespace {

void require_images(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  c.require_rank(0, 4);
  c.require_rank(1, 4);
}

void require_channels(const ShapeContext& c, std::int64_t actual, std::int64_t wanted,
                      const char* what) {
  c.require(actual == wanted || actual == kUnknownSize || wanted == kUnknownSize, what,
            " differ: ", c.input(0), " and ", c.input(1));
}

// Channels of a group.
std::int64_t of_group(const ShapeContext& c, std::int64_t channels, int groups, const char* what) {
  c.require(groups >= 1, "groups must be at least 1, not ", groups);
  if (channels == kUnknownSize) return kUnknownSize;
  c.require(channels % groups == 0, channels, " channels of ", what,
            " cannot be divided into groups of one size; ", groups, " groups are asked for");
  return channels / groups;
}

OutputTypes conv2d_shape(const ShapeContext& c) {
  require_images(c);
  const Shape &x = c.input(0), &filter = c.input(1);
  const auto [stride, padding, dilation, groups] = c.options<Conv2dOptions>();
  of_group(c, filter[0], groups, "the output");
  require_channels(
      c, of_group(c, x[3], groups, "the image"), filter[3],
      groups == 1 ? "channels of image [n,h,w,in] and filter [out,kh,kw,in]"
                  : "channels of a group of image [n,h,w,in] and filter [out,kh,kw,in/groups]");
  return {Shape{x[0],
                window_output(c, "height", x[1], filter[1], stride.vertical, padding.vertical(),
                              dilation.vertical),
                window_output(c, "width", x[2], filter[2], stride.horizontal, padding.horizontal(),
                              dilation.horizontal),
                filter[0]}};
}

void require_size(const ShapeContext& c, const Conv2dGradOptions& options) {
  c.require(options.height > 0 && options.width > 0,
            "the size of images and filters must be known when gradients are built; give the "
            "placeholder a height and width");
}

OutputTypes grad_input_shape(const ShapeContext& c) {
  require_images(c);
  const auto& options = c.options<Conv2dGradOptions>();
  const Shape &dy = c.input(0), &filter = c.input(1);
  require_size(c, options);
  require_channels(c, dy[3], filter[0], "channels of gradient and filter");
  of_group(c, filter[0], options.groups, "the gradient");
  const std::int64_t channels =
      filter[3] == kUnknownSize ? kUnknownSize : filter[3] * options.groups;
  return {Shape{dy[0], options.height, options.width, channels}};
}

OutputTypes grad_filter_shape(const ShapeContext& c) {
  require_images(c);
  const auto& options = c.options<Conv2dGradOptions>();
  const Shape &x = c.input(0), &dy = c.input(1);
  require_size(c, options);
  require_channels(c, x[0], dy[0], "numbers of images and gradients");
  of_group(c, dy[3], options.groups, "the gradient");
  return {
      Shape{dy[3], options.height, options.width, of_group(c, x[3], options.groups, "the image")}};
}

Output grad_input(Output dy, Output filter, const Conv2dOptions& options, const Shape& image) {
  return dy.graph()
      .add(kConv2dGradInput, {dy, filter}, {},
           NodeOptions(conv2d_grad_options(options, image[1], image[2])))
      .output();
}

Output grad_filter(Output x, Output dy, const Conv2dOptions& options, const Shape& filter) {
  return x.graph()
      .add(kConv2dGradFilter, {x, dy}, {},
           NodeOptions(conv2d_grad_options(options, filter[1], filter[2])))
      .output();
}

std::vector<Output> conv2d_gradient(const Node& node, std::span<const Output> grads) {
  const Output x = node.input(0), filter = node.input(1);
  const auto& options = node.options<Conv2dOptions>();
  return {grad_input(grads[0], filter, options, x.shape()),
          grad_filter(x, grads[0], options, filter.shape())};
}

// Both gradient ops are linear in each input, so their gradients are convolutions again.
std::vector<Output> grad_input_gradient(const Node& node, std::span<const Output> grads) {
  const Conv2dOptions options = conv2d_options(node.options<Conv2dGradOptions>());
  return {conv2d(grads[0], node.input(1), options),
          grad_filter(grads[0], node.input(0), options, node.input(1).shape())};
}

std::vector<Output> grad_filter_gradient(const Node& node, std::span<const Output> grads) {
  const Conv2dOptions options = conv2d_options(node.options<Conv2dGradOptions>());
  return {grad_input(node.input(1), grads[0], options, node.input(0).shape()),
          conv2d(node.input(0), grads[0], options)};
}

// Each element of the smaller images, of shape `pixels`, meets the filter of one output channel.
OpWork filtered(const Shape& pixels, const Shape& filter) {
  return {work_elements(pixels) * work_elements(filter, 1)};
}
OpWork conv2d_work(const WorkContext& c) {
  return filtered(c.outputs[0].shape, c.node.input(1).shape());
}
OpWork grad_input_work(const WorkContext& c) {
  return filtered(c.inputs[0].shape, c.node.input(1).shape());
}
OpWork grad_filter_work(const WorkContext& c) {
  return filtered(c.inputs[1].shape, c.outputs[0].shape);
}

// The kernel that calls run(first input, second input, output, workspace).
template <class T, class Run>
KernelRun kernel_of(Run run) {
  return [=](const KernelPointers& p) {
    run(p.input<T>(0), p.input<T>(1), p.output<T>(), p.workspace());
  };
}

KernelRun conv2d_reference(KernelPlan& plan) {
  const kernels::ConvShape s = kernels::forward_shape(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernel_of<T>([s](const T* x, const T* filter, T* y, std::byte*) {
      kernels::conv2d_plain(s, x, filter, y);
    });
  });
}
KernelRun grad_input_reference(KernelPlan& plan) {
  const kernels::ConvShape s = kernels::grad_input_shape(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernel_of<T>([s](const T* dy, const T* filter, T* dx, std::byte*) {
      kernels::conv2d_grad_input_plain(s, dy, filter, dx);
    });
  });
}
KernelRun grad_filter_reference(KernelPlan& plan) {
  const kernels::ConvShape s = kernels::grad_filter_shape(plan);
  return visit_floating(plan.dtype(), [&]<class T>(T) {
    return kernel_of<T>([s](const T* x, const T* dy, T* filter, std::byte*) {
      kernels::conv2d_grad_filter_plain(s, x, dy, filter);
    });
  });
}

#if BELFRY_ONEDNN
bool for_library(const KernelPlan& plan) {
  return plan.dtype() == DType::kF32 && plan.input(0).shape[0] > 0;
}
KernelRun conv2d_cpu(KernelPlan& plan) {
  if (!for_library(plan)) return {};
  return kernel_of<float>(kernels::onednn_conv2d(plan, kernels::forward_shape(plan)));
}
KernelRun grad_input_cpu(KernelPlan& plan) {
  if (!for_library(plan)) return {};
  return kernel_of<float>(kernels::onednn_conv2d_grad_input(plan, kernels::grad_input_shape(plan)));
}
KernelRun grad_filter_cpu(KernelPlan& plan) {
  if (!for_library(plan)) return {};
  return kernel_of<float>(
      kernels::onednn_conv2d_grad_filter(plan, kernels::grad_filter_shape(plan)));
}
// Kernels take the shape of a packed filter from the graph.
bool may_be_packed(const KernelPlan& plan) {
  return for_library(plan) && plan.node().input(1).shape() == plan.input(1).shape;
}
std::shared_ptr<const PackedForm> conv2d_form(const KernelPlan& plan) {
  if (!may_be_packed(plan)) return nullptr;
  return kernels::onednn_conv2d_form(plan, kernels::forward_shape(plan));
}
std::shared_ptr<const PackedForm> grad_input_form(const KernelPlan& plan) {
  if (!may_be_packed(plan)) return nullptr;
  return kernels::onednn_conv2d_grad_input_form(plan, kernels::grad_input_shape(plan));
}
#else
constexpr CpuKernel conv2d_cpu = nullptr, grad_input_cpu = nullptr, grad_filter_cpu = nullptr;
constexpr decltype(Op::packed_form) conv2d_form = nullptr, grad_input_form = nullptr;
#endif

}  // namespace

Conv2dGradOptions conv2d_grad_options(const Conv2dOptions& options, std::int64_t height,
                                      std::int64_t width) {
  return {.stride = options.stride,
          .padding = options.padding,
          .height = std::max<std::int64_t>(0, height),
          .width = std::max<std::int64_t>(0, width),
          .dilation = options.dilation,
          .groups = options.groups};
}

Conv2dOptions conv2d_options(const Conv2dGradOptions& options) {
  return {options.stride, options.padding, options.dilation, options.groups};
}

const Op kConv2d{.name = "Conv2d",
                 .inputs = 2,
                 .shape = conv2d_shape,
                 .gradient = conv2d_gradient,
                 .heavy = true,
                 .work = conv2d_work,
                 .shards = by_rows<1>,
                 .cpu = conv2d_cpu,
                 .packed_form = conv2d_form,
                 .reference = conv2d_reference,
                 .autocast = Autocast::kCompute};

const Op kConv2dGradInput{.name = "Conv2dGradInput",
                          .inputs = 2,
                          .shape = grad_input_shape,
                          .gradient = grad_input_gradient,
                          .heavy = true,
                          .work = grad_input_work,
                          .shards = by_rows<1>,
                          .cpu = grad_input_cpu,
                          .packed_form = grad_input_form,
                          .reference = grad_input_reference,
                          .autocast = Autocast::kCompute};

const Op kConv2dGradFilter{.name = "Conv2dGradFilter",
                           .inputs = 2,
                           .shape = grad_filter_shape,
                           .gradient = grad_filter_gradient,
                           .heavy = true,
                           .work = grad_filter_work,
                           .shards = to_sums<3>,
                           .cpu = grad_filter_cpu,
                           .reference = grad_filter_reference};
const StoredOptions<Conv2dOptions> kStoredConv2d(kConv2d);
const StoredOptions<Conv2dGradOptions> kStoredConv2dGradInput(kConv2dGradInput, kConv2dGradFilter);

Output conv2d(Output x, Output filter, Conv2dOptions options, At at) {
  return x.graph().add(kConv2d, {x, filter}, at, NodeOptions(options)).output();
}

}  // namespace belfry
