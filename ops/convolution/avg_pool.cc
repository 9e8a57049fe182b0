#include "belfry/ops/convolution/avg_pool.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/convolution/avg_pool_impl.h"
#include "belfry/ops/convolution/stored_window_impl.h"
#include "belfry/ops/kernels/typed_kernels.h"

namespace belfry {
namespace {

using kernels::for_each_pixel;
using kernels::forward_pool;
using kernels::gradient_pool;
using kernels::Pool;

OutputTypes avg_pool_shape(const ShapeContext& c) { return {pool_output(c)}; }
OutputTypes avg_pool_grad_shape(const ShapeContext& c) { return {pool_input(c)}; }

std::vector<Output> avg_pool_gradient(const Node& node, std::span<const Output> grads) {
  const auto options = pool_grad_options(node.options<PoolOptions>(), node.input(0).shape());
  return {node.graph().add(kAvgPoolGrad, {grads[0]}, {}, NodeOptions(options)).output()};
}

std::vector<Output> avg_pool_grad_gradient(const Node& node, std::span<const Output> grads) {
  return {avg_pool(grads[0], pool_options(node.options<PoolGradOptions>()))};
}

template <class T>
BELFRY_KERNEL void avg_pool_image(const Pool& s, const T* x, T* y) {
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column, y += s.channels) {
      T count = 1;
      for (std::int64_t c = 0; c < s.channels; ++c) y[c] = 0;
      for_each_pixel(
          s, row, column, [&](std::int64_t at, std::int64_t pixels) __attribute__((always_inline)) {
            count = static_cast<T>(pixels);
            BELFRY_INDEPENDENT
            for (std::int64_t c = 0; c < s.channels; ++c) y[c] += x[at + c];
          });
      for (std::int64_t c = 0; c < s.channels; ++c) y[c] /= count;
    }
}

template <class T>
BELFRY_KERNEL void avg_pool_grad_image(const Pool& s, const T* dy, T* dx) {
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column, dy += s.channels)
      for_each_pixel(
          s, row, column, [&](std::int64_t at, std::int64_t pixels) __attribute__((always_inline)) {
            BELFRY_INDEPENDENT
            for (std::int64_t c = 0; c < s.channels; ++c)
              dx[at + c] += dy[c] / static_cast<T>(pixels);
          });
}

KernelRun avg_pool_cpu(KernelPlan& plan) {
  return typed_kernel(plan, [s = forward_pool(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n)
      avg_pool_image(s, p.input<T>(0) + n * s.image_size(), p.output<T>() + n * s.pooled_size());
  });
}

KernelRun avg_pool_grad_cpu(KernelPlan& plan) {
  return typed_kernel(plan, [s = gradient_pool(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      T* dx = p.output<T>() + n * s.image_size();
      std::fill_n(dx, s.image_size(), T(0));
      avg_pool_grad_image(s, p.input<T>(0) + n * s.pooled_size(), dx);
    }
  });
}

// The reference kernel computes value by value.
template <class Visit>
void for_each_value(const Pool& s, const Visit& visit) {
  std::int64_t pooled = 0;
  for (std::int64_t row = 0; row < s.vertical.out; ++row)
    for (std::int64_t column = 0; column < s.horizontal.out; ++column)
      for (std::int64_t c = 0; c < s.channels; ++c) visit(pooled++, row, column, c);
}

KernelRun avg_pool_reference(KernelPlan& plan) {
  return typed_kernel(plan, [s = forward_pool(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* x = p.input<T>(0) + n * s.image_size();
      T* y = p.output<T>() + n * s.pooled_size();
      for_each_value(s,
                     [&](std::int64_t at, std::int64_t row, std::int64_t column, std::int64_t c) {
                       T sum = 0, count = 1;
                       for_each_pixel(s, row, column, [&](std::int64_t pixel, std::int64_t pixels) {
                         sum += x[pixel + c];
                         count = static_cast<T>(pixels);
                       });
                       y[at] = sum / count;
                     });
    }
  });
}

KernelRun avg_pool_grad_reference(KernelPlan& plan) {
  return typed_kernel(plan, [s = gradient_pool(plan)]<class T>(T, const KernelPointers& p) {
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* dy = p.input<T>(0) + n * s.pooled_size();
      T* dx = p.output<T>() + n * s.image_size();
      std::fill_n(dx, s.image_size(), T(0));
      for_each_value(s,
                     [&](std::int64_t at, std::int64_t row, std::int64_t column, std::int64_t c) {
                       for_each_pixel(s, row, column, [&](std::int64_t pixel, std::int64_t pixels) {
                         dx[pixel + c] += dy[at] / static_cast<T>(pixels);
                       });
                     });
    }
  });
}

}  // namespace

const Op kAvgPool{.name = "AvgPool",
                  .inputs = 1,
                  .shape = avg_pool_shape,
                  .gradient = avg_pool_gradient,
                  .split = WorkSplit::kRows,
                  .shards = by_rows<1>,
                  .cpu = avg_pool_cpu,
                  .reference = avg_pool_reference};

const Op kAvgPoolGrad{.name = "AvgPoolGrad",
                      .inputs = 1,
                      .shape = avg_pool_grad_shape,
                      .gradient = avg_pool_grad_gradient,
                      .split = WorkSplit::kRows,
                      .shards = by_rows<1>,
                      .cpu = avg_pool_grad_cpu,
                      .reference = avg_pool_grad_reference};
const StoredOptions<PoolOptions> kStoredAvgPool(kAvgPool);
const StoredOptions<PoolGradOptions> kStoredAvgPoolGrad(kAvgPoolGrad);

Output avg_pool(Output x, PoolOptions options, At at) {
  return x.graph().add(kAvgPool, {x}, at, NodeOptions(options)).output();
}

}  // namespace belfry
