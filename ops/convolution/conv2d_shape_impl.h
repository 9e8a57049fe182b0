// The shapes of a plan's Conv2d, or of its gradients, for kernels.
#pragma once
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/convolution/conv2d_impl.h"

namespace belfry::kernels {

inline ConvShape conv_shape(const Shape& x, const Shape& filter, const Conv2dOptions& options) {
  const auto& [stride, padding, dilation, groups] = options;
  return {
      x[0],
      x[3],
      filter[0],
      groups,
      FilterAxis(x[1], filter[1], stride.vertical, padding.vertical(), dilation.vertical),
      FilterAxis(x[2], filter[2], stride.horizontal, padding.horizontal(), dilation.horizontal)};
}

// A packed filter has rank 1: then the graph has its shape.
inline const Shape& filter_shape(const KernelPlan& plan) {
  const Shape& given = plan.input(1).shape;
  return given.rank() == 4 ? given : plan.node().input(1).shape();
}

inline ConvShape forward_shape(const KernelPlan& plan) {
  return conv_shape(plan.input(0).shape, filter_shape(plan), plan.options<Conv2dOptions>());
}
inline ConvShape grad_input_shape(const KernelPlan& plan) {
  return conv_shape(plan.output().shape, filter_shape(plan),
                    conv2d_options(plan.options<Conv2dGradOptions>()));
}
inline ConvShape grad_filter_shape(const KernelPlan& plan) {
  return conv_shape(plan.input(0).shape, plan.output().shape,
                    conv2d_options(plan.options<Conv2dGradOptions>()));
}

}  // namespace belfry::kernels
