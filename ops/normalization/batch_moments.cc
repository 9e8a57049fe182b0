#include "belfry/ops/normalization/batch_moments.h"

#include <algorithm>

#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/batch_norm_impl.h"
#include "belfry/ops/normalization/moments.h"

namespace belfry {
namespace {

OutputTypes moments_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require_same_dtype();
  c.require(c.inputs() == 1 || (c.inputs() == 2 && c.input(1).rank() == 0),
            "takes a tensor and a scalar weight");
  const Shape& x = c.input(0);
  c.require(x.rank() >= 2, "needs images or rows, but the shape is ", x);
  const Shape channels{x.back()};
  return {channels, channels, Shape{}};
}

template <class T>
bool counts(const KernelPointers& p) {
  return p.inputs() < 2 || p.input<T>(1)[0] != 0;
}

KernelRun moments_cpu(KernelPlan& plan) {
  const BatchNormExtent x(plan.input(0).shape);
  const std::int64_t rows = x.rows, channels = x.channels;
  plan.workspace(kernels::moment_scratch_bytes(rows, channels, plan.dtype()));
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    T *const mean = p.output<T>(0), *const squares = p.output<T>(1);
    p.output<T>(2)[0] = counts<T>(p) ? static_cast<T>(rows) : T(0);
    if (rows > 0)
      return kernels::moments(p.input<T>(0), rows, channels, mean, squares,
                              reinterpret_cast<T*>(p.workspace()));
    std::fill_n(mean, channels, T(0));
    std::fill_n(squares, channels, T(0));
  });
}

// Channel by channel, in f64.
KernelRun moments_reference(KernelPlan& plan) {
  const BatchNormExtent x(plan.input(0).shape);
  const std::int64_t rows = x.rows, channels = x.channels;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const auto count = static_cast<double>(std::max<std::int64_t>(rows, 1));
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (std::int64_t i = c; i < rows * channels; i += channels) sum += p.input<T>(0)[i];
      for (std::int64_t i = c; i < rows * channels; i += channels) {
        const double distance = p.input<T>(0)[i] - sum / count;
        squares += distance * distance;
      }
      p.output<T>(0)[c] = static_cast<T>(sum / count);
      p.output<T>(1)[c] = static_cast<T>(squares);
    }
    p.output<T>(2)[0] = counts<T>(p) ? static_cast<T>(rows) : T(0);
  });
}

}  // namespace

const Op kBatchMoments{.name = "BatchMoments",
                       .inputs = kVariadicInputs,
                       .shape = moments_shape,
                       .no_gradient = kMadeByPlans,
                       .cpu = moments_cpu,
                       .reference = moments_reference};

}  // namespace belfry
