// Ops that replace a batch norm where a device cuts its batch into shards.
#include <cmath>

#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_norm_impl.h"
#include "belfry/ops/normalization/fused_batch_norm.h"
#include "belfry/ops/normalization/moments.h"
#include "belfry/ops/normalization/normalise.h"

namespace belfry {
namespace {

// dgamma and dbeta.
OutputTypes sums_shape(const ShapeContext& c) {
  const Shape channels{c.input(1).back()};
  return {channels, channels};
}

OutputTypes input_grad_shape(const ShapeContext& c) { return {c.input(1)}; }

KernelRun sums_cpu(KernelPlan& plan) {
  const auto [rows, channels] = BatchNormExtent(plan.input(1).shape);
  plan.workspace(kernels::moment_scratch_bytes(rows, channels, plan.dtype()));
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=, n = rows, c = channels]<class T>(T, const KernelPointers& p) {
    T *const dgamma = p.output<T>(0), *const dbeta = p.output<T>(1);
    kernels::gradient_sums(p.input<T>(0), p.input<T>(1), p.input<T>(2), n, c, dbeta, dgamma,
                           reinterpret_cast<T*>(p.workspace()));
    for (std::int64_t i = 0; i < c; ++i)
      dgamma[i] /= std::sqrt(p.input<T>(3)[i] + static_cast<T>(epsilon));
  });
}

KernelRun input_grad_cpu(KernelPlan& plan) {
  const auto [rows, channels] = BatchNormExtent(plan.input(1).shape);
  plan.workspace(channels * static_cast<std::int64_t>(size_of(plan.dtype())));
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  const double all = plan.of_all(static_cast<double>(rows));
  return typed_kernel(plan, [=, n = rows, c = channels]<class T>(T, const KernelPointers& p) {
    const T* const variance = p.input<T>(4);
    const T small = static_cast<T>(epsilon);
    T* const product = reinterpret_cast<T*>(p.workspace());
    for (std::int64_t i = 0; i < c; ++i)
      product[i] = p.input<T>(5)[i] * std::sqrt(variance[i] + small);
    kernels::trained_input_gradient(p.input<T>(0), p.input<T>(1), n, c,
                                    {p.input<T>(3), variance, p.input<T>(2), small}, p.input<T>(6),
                                    product, static_cast<T>(all), p.output<T>());
  });
}

KernelRun sums_reference(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const T *const dy = p.input<T>(0), *const x = p.input<T>(1);
    for (std::int64_t c = 0; c < e.channels; ++c) {
      const double mean = p.input<T>(2)[c], spread = std::sqrt(p.input<T>(3)[c] + epsilon);
      const PlainGradientSums sums(dy, x, e, c, mean, spread);
      p.output<T>(0)[c] = static_cast<T>(sums.product);
      p.output<T>(1)[c] = static_cast<T>(sums.sum);
    }
  });
}

KernelRun input_grad_reference(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  const double n = plan.of_all(static_cast<double>(e.rows));
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    for (std::int64_t i = 0; i < e.rows * e.channels; ++i) {
      const std::int64_t c = i % e.channels;
      const double spread = std::sqrt(p.input<T>(4)[c] + epsilon);
      const double far = (p.input<T>(1)[i] - p.input<T>(3)[c]) / spread;
      const double centred = p.input<T>(0)[i] - p.input<T>(6)[c] / n - far * p.input<T>(5)[c] / n;
      p.output<T>()[i] = static_cast<T>(p.input<T>(2)[c] / spread * centred);
    }
  });
}

constexpr const char* kOneShard = "devices on GPUs have one shard";

}  // namespace

const Op kBatchNormSums{.name = "BatchNormSums",
                        .inputs = 4,
                        .shape = sums_shape,
                        .no_gradient = kMadeByPlans,
                        .fuse = fuse_batch_norm_sums,
                        .cpu = sums_cpu,
                        .reference = sums_reference,
                        .cpu_only = kOneShard};

const Op kBatchNormInputGrad{.name = "BatchNormInputGrad",
                             .inputs = 7,
                             .shape = input_grad_shape,
                             .no_gradient = kMadeByPlans,
                             .in_place = InPlace::kFirst,
                             .cpu = input_grad_cpu,
                             .reference = input_grad_reference,
                             .cpu_only = kOneShard};

}  // namespace belfry
