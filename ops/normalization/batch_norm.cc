#include "belfry/ops/normalization/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/plan/expansion.h"
#include "belfry/ops/composed_gradient.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/batch_moments.h"
#include "belfry/ops/normalization/batch_norm_impl.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/ops/normalization/composed_norm_impl.h"
#include "belfry/ops/normalization/fused_batch_norm.h"
#include "belfry/ops/normalization/moments.h"
#include "belfry/ops/normalization/normalise.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/stop_gradient.h"

namespace belfry {
namespace {

// Inputs [first, ..) have one value per channel of input 0.
void require_channels(const ShapeContext& c, std::size_t first) {
  const double epsilon = c.options<BatchNormOptions>().epsilon;
  c.require(epsilon >= 0, "epsilon must not be negative, but is ", epsilon);
  c.require_floating(0);
  c.require_same_dtype();
  const Shape& x = c.input(0);
  c.require(x.rank() >= 2, "needs images or rows, but the shape is ", x);
  for (std::size_t i = first; i < c.inputs(); ++i)
    c.require(c.input(i).compatible(Shape{x.back()}), "input ", i, " has shape ", c.input(i),
              ", but there are ", x.back(), " channels: ", x);
}

OutputTypes train_shape(const ShapeContext& c) {
  require_channels(c, 1);
  const Shape channels{c.input(0).back()};
  return {c.input(0), channels, channels};
}

OutputTypes inference_shape(const ShapeContext& c) {
  require_channels(c, 1);
  return {c.input(0)};
}

OutputTypes batch_norm_grad_shape(const ShapeContext& c) {
  require_channels(c, 2);
  c.require(c.input(1).compatible(c.input(0)), "gradient and input have shapes ", c.input(0),
            " and ", c.input(1));
  const Shape channels{c.input(1).back()};
  return {c.input(1), channels, channels};
}

// The same types, and the types of the moments' gradients.
OutputTypes given_grad_shape(const ShapeContext& c) {
  OutputTypes types = batch_norm_grad_shape(c);
  types.insert(types.end(), 2, types[1]);
  return types;
}

std::vector<Output> train_gradient(const Node& node, std::span<const Output> grads) {
  require(grads[0] && !grads[1] && !grads[2], node.describe(),
          ": the moments of batch norm cannot be differentiated; use stop_gradient on them");
  Node& grad = node.graph().add(
      kBatchNormTrainGrad, {grads[0], node.input(0), node.input(1), node.output(1), node.output(2)},
      {}, node.raw_options());
  return {grad.output(0), grad.output(1), grad.output(2)};
}

std::vector<Output> train_grad_gradient(const Node& node, std::span<const Output> grads) {
  std::vector<int> axes(node.input(1).shape().rank() - 1);
  std::iota(axes.begin(), axes.end(), 0);
  return norm_grad_gradient(node, grads, [&](Output x) {
    return composed_norm(x, axes, node.options<BatchNormOptions>().epsilon);
  });
}

bool is_constant(const Output& input) { return &input.node().op() == &kStopGradient; }

// Where all else is constant, the gradient of x needs no x, which is then not kept.
std::vector<Output> inference_gradient(const Node& node, std::span<const Output> grads) {
  if (std::ranges::all_of(node.inputs().subspan(1), is_constant)) {
    const double epsilon = node.options<BatchNormOptions>().epsilon;
    const Output scale = node.input(1) / sqrt(node.input(4) + epsilon);
    return {grads[0] * scale, {}, {}, {}, {}};
  }
  Node& grad =
      node.graph().add(kBatchNormInferenceGrad,
                       {grads[0], node.input(0), node.input(1), node.input(3), node.input(4)}, {},
                       node.raw_options());
  return {grad.output(0), grad.output(1), grad.output(2), grad.output(3), grad.output(4)};
}

std::vector<Output> inference_grad_gradient(const Node& node, std::span<const Output> grads) {
  return composed_gradient(node, grads, [&](std::span<const Output> inputs) {
    const Output x = inputs[1], gamma = inputs[2], mean = inputs[3], variance = inputs[4];
    const Output beta = fill_like(gamma, 0);  // its values do not matter
    const double epsilon = node.options<BatchNormOptions>().epsilon;
    const Output y = (x - mean) * (gamma / sqrt(variance + epsilon)) + beta;
    return gradients(y, {x, gamma, beta, mean, variance}, {.initial = {inputs[0]}});
  });
}

KernelRun inference_cpu(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::int64_t channels = x.back(), rows = x.product(1, x.rank() - 1);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const std::int64_t at = p.begin() * rows * channels;
    kernels::normalise(p.input<T>(0) + at, (p.end() - p.begin()) * rows, channels,
                       {p.input<T>(3), p.input<T>(4), p.input<T>(1), static_cast<T>(epsilon)},
                       p.input<T>(2), p.output<T>() + at);
  });
}

// The plain kernels: channel by channel, in f64.
template <class T>
void plain_moments(const T* x, const BatchNormExtent& e, std::int64_t c, T* mean, T* variance) {
  double sum = 0, squares = 0;
  for (std::int64_t r = 0; r < e.rows; ++r) sum += x[r * e.channels + c];
  const double middle = sum / static_cast<double>(e.rows);
  for (std::int64_t r = 0; r < e.rows; ++r) {
    const double d = x[r * e.channels + c] - middle;
    squares += d * d;
  }
  *mean = static_cast<T>(middle);
  *variance = static_cast<T>(squares / static_cast<double>(e.rows));
}

KernelRun train_reference(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(0).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const T* const x = p.input<T>(0);
    for (std::int64_t c = 0; c < e.channels; ++c) {
      T mean, variance;
      plain_moments(x, e, c, &mean, &variance);
      const double scale = p.input<T>(1)[c] / std::sqrt(variance + epsilon);
      for (std::int64_t i = c; i < e.rows * e.channels; i += e.channels)
        p.output<T>()[i] = static_cast<T>((x[i] - mean) * scale + p.input<T>(2)[c]);
      p.output<T>(1)[c] = mean;
      p.output<T>(2)[c] = variance;
    }
  });
}

KernelRun inference_reference(KernelPlan& plan) {
  const Shape& shape = plan.input(0).shape;
  const std::int64_t channels = shape.back(), row = shape.product(1, shape.rank());
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    for (std::int64_t i = p.begin() * row; i < p.end() * row; ++i) {
      const std::int64_t c = i % channels;
      const double scale = p.input<T>(1)[c] / std::sqrt(p.input<T>(4)[c] + epsilon);
      p.output<T>()[i] =
          static_cast<T>((p.input<T>(0)[i] - p.input<T>(3)[c]) * scale + p.input<T>(2)[c]);
    }
  });
}

template <bool trained>
KernelRun batch_norm_grad_reference(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const T *const dy = p.input<T>(0), *const x = p.input<T>(1);
    const auto n = static_cast<double>(e.rows);
    for (std::int64_t c = 0; c < e.channels; ++c) {
      const double mean = p.input<T>(3)[c], spread = std::sqrt(p.input<T>(4)[c] + epsilon);
      const auto [sum, product] = PlainGradientSums(dy, x, e, c, mean, spread);
      for (std::int64_t i = c; i < e.rows * e.channels; i += e.channels) {
        const double centred = trained ? dy[i] - sum / n - (x[i] - mean) / spread * product / n
                                       : static_cast<double>(dy[i]);
        p.output<T>()[i] = static_cast<T>(p.input<T>(2)[c] / spread * centred);
      }
      p.output<T>(1)[c] = static_cast<T>(product);
      p.output<T>(2)[c] = static_cast<T>(sum);
      if (trained) continue;
      const double scale = p.input<T>(2)[c] / spread;
      p.output<T>(3)[c] = static_cast<T>(-sum * scale);
      p.output<T>(4)[c] = static_cast<T>(product * scale / spread / -2);
    }
  });
}

// Shards have rows of x, and share the other tensors.
Sharding train_shards(const ShardContext& c) {
  Sharding sharding = row_shards({c.node, c.inputs, c.outputs.first(1), c.divisions, c.samples}, 1);
  if (sharding.divides()) sharding.outputs.resize(3);
  return sharding;
}

void expand_train(Expansion& e) {
  const TensorType &x = e.output(0), &channels = e.output(1);
  const NodeIndex parts =
      e.add_divided(kBatchMoments, {e.input(0)}, {channels, channels, {Shape{}, channels.dtype}},
                    {.outputs = std::vector(3, Division::partial()), .own = {true}});
  const NodeIndex all = e.add_once(kCombineMoments, e.shards_of(parts, 3),
                                   {channels, channels, {Shape{}, channels.dtype}});
  const NodeIndex y =
      e.add_divided(kBatchNormInference, {e.input(0), e.input(1), e.input(2), {all, 0}, {all, 1}},
                    {x}, {.outputs = {e.division(0)}, .own = {true, false, false, false, false}});
  e.result = {{y, 0}, {all, 0}, {all, 1}};
}

Sharding train_grad_shards(const ShardContext& c) {
  Sharding sharding = row_shards({c.node, c.inputs, c.outputs.first(1), c.divisions, c.samples}, 3);
  if (sharding.divides()) sharding.outputs.resize(c.outputs.size(), Division::partial());
  return sharding;
}

void expand_train_grad(Expansion& e) {
  const TensorType& channels = e.output(1);
  const Value dy = e.input(0), x = e.input(1), gamma = e.input(2), mean = e.input(3),
              variance = e.input(4);
  const NodeIndex sums = e.add_divided(
      kBatchNormSums, {dy, x, mean, variance}, {channels, channels},
      {.outputs = std::vector(2, Division::partial()), .own = {true, true, false, false}});
  const NodeIndex dx = e.add_divided(
      kBatchNormInputGrad, {dy, x, gamma, mean, variance, e.sum({sums, 0}), e.sum({sums, 1})},
      {e.output(0)},
      {.outputs = {e.division(0)}, .own = {true, true, false, false, false, false, false}});
  e.result = {{dx, 0}, {sums, 0}, {sums, 1}};
}

}  // namespace

const Op kBatchNormTrain{.name = "BatchNormTrain",
                         .inputs = 3,
                         .shape = train_shape,
                         .gradient = train_gradient,
                         .missing_grads = true,
                         .shards = train_shards,
                         .expand = expand_train,
                         .fuse = fuse_batch_norm,
                         .in_place = InPlace::kFirst,
                         .cpu = train_on_host,
                         .reference = train_reference,
                         .autocast = Autocast::kFull};

const Op kBatchNormTrainGrad{.name = "BatchNormTrainGrad",
                             .inputs = 5,
                             .shape = batch_norm_grad_shape,
                             .gradient = train_grad_gradient,
                             .missing_grads = true,
                             .shards = train_grad_shards,
                             .expand = expand_train_grad,
                             .fuse = fuse_batch_norm_gradient,
                             .in_place = InPlace::kFirst,
                             .cpu = gradient_on_host<true>,
                             .reference = batch_norm_grad_reference<true>};

const Op kBatchNormInference{.name = "BatchNormInference",
                             .inputs = 5,
                             .shape = inference_shape,
                             .gradient = inference_gradient,
                             .split = WorkSplit::kRows,
                             .shards = by_rows<1>,
                             .fuse = fuse_batch_norm,
                             .in_place = InPlace::kFirst,
                             .cpu = inference_cpu,
                             .reference = inference_reference,
                             .autocast = Autocast::kFull};

const Op kBatchNormInferenceGrad{.name = "BatchNormInferenceGrad",
                                 .inputs = 5,
                                 .shape = given_grad_shape,
                                 .gradient = inference_grad_gradient,
                                 .missing_grads = true,
                                 .shards = train_grad_shards,
                                 .fuse = fuse_batch_norm_gradient,
                                 .in_place = InPlace::kFirst,
                                 .cpu = gradient_on_host<false>,
                                 .reference = batch_norm_grad_reference<false>};
const StoredOptions<BatchNormOptions> kStoredBatchNormInference(kBatchNormInference,
                                                                kBatchNormInferenceGrad);

BatchNorm batch_norm_train(Output x, Output gamma, Output beta, BatchNormOptions options, At at) {
  Node& node = x.graph().add(kBatchNormTrain, {x, gamma, beta}, at, NodeOptions(options));
  return {node.output(0), node.output(1), node.output(2)};
}

Output batch_norm_inference(Output x, Output gamma, Output beta, Output mean, Output variance,
                            BatchNormOptions options, At at) {
  return x.graph()
      .add(kBatchNormInference, {x, gamma, beta, mean, variance}, at, NodeOptions(options))
      .output();
}

}  // namespace belfry
