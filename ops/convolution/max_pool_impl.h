// Shared by the kernels of MaxPool and its gradient.
#pragma once
#include <cstdint>
#include <type_traits>

#include "belfry/framework/graph/kernel.h"
#include "belfry/ops/convolution/window.h"

namespace belfry::kernels {

// Max pooling of images of one size. `channels` is the distance between pixels.
struct MaxPooling {
  std::int64_t channels;
  WindowAxis vertical, horizontal;

  MaxPooling(const Shape& image, const PoolOptions& options)
      : channels(image[3]),
        vertical(image[1], options.window.vertical, options.stride.vertical,
                 options.padding.vertical()),
        horizontal(image[2], options.window.horizontal, options.stride.horizontal,
                   options.padding.horizontal()) {}
  static MaxPooling forward(const KernelPlan& plan) {
    return MaxPooling(plan.input(0).shape, plan.options<PoolOptions>());
  }
  static MaxPooling gradient(const KernelPlan& plan) {
    return MaxPooling(plan.output().shape, pool_options(plan.options<PoolGradOptions>()));
  }

  std::int64_t image_size() const { return vertical.in * horizontal.in * channels; }
  std::int64_t pooled_size() const { return vertical.out * horizontal.out * channels; }
  // Every pixel of the image lies in exactly one window.
  bool tiles() const {
    return vertical.window == vertical.stride && horizontal.window == horizontal.stride &&
           vertical.out * vertical.stride >= vertical.in + vertical.before &&
           horizontal.out * horizontal.stride >= horizontal.in + horizontal.before;
  }
};

// Integers as wide as T, since loops that mix widths in a select do not vectorise.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

// A value and its place in its window. NaN counts as larger.
template <class T>
struct Candidate {
  T value;
  Wide<T> place;
};
template <class T>
BELFRY_HD Candidate<T> larger(Candidate<T> a, Candidate<T> b) {
  const Candidate<T> by_size{b.value > a.value ? b.value : a.value,
                             b.value > a.value ? b.place : a.place};
  return {b.value != b.value ? b.value : by_size.value,
          b.value != b.value ? b.place : by_size.place};
}

}  // namespace belfry::kernels
