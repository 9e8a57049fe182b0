#include "belfry/ops/normalization/fused_batch_norm.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/core_ops/made_by_plans.h"
#include "belfry/framework/kernels/half.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/reference_of_part.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_norm_impl.h"
#include "belfry/ops/normalization/moments.h"
#include "belfry/ops/normalization/normalise.h"
#include "belfry/ops/relu.h"

namespace belfry {
namespace {

constexpr std::size_t kGradientInputs = 5;  // without y

// Inputs without a shortcut; outputs of the gradient without g.
constexpr std::size_t forward_inputs(bool trained) { return trained ? 3 : 5; }
constexpr std::size_t gradient_outputs(bool trained) { return trained ? 3 : 5; }

template <bool trained>
OutputTypes fused_forward_shape(const ShapeContext& c) {
  const std::size_t inputs = forward_inputs(trained);
  c.require(c.inputs() == inputs || c.inputs() == inputs + 1,
            "takes those of a batch norm, and perhaps a shortcut");
  const OutputType channels(Shape{c.input(0).back()}, c.dtype(1));
  if (trained) return {c.type(0), channels, channels};
  return {c.type(0)};
}

template <bool trained>
OutputTypes fused_gradient_shape(const ShapeContext& c) {
  c.require(kGradientInputs <= c.inputs() && c.inputs() <= kGradientInputs + 3,
            "takes those of the gradient of a batch norm, and perhaps an output of ReLU, an addend "
            "and beta");
  OutputTypes types(gradient_outputs(trained), {Shape{c.input(1).back()}, c.dtype(2)});
  types[0] = c.type(1);
  if (c.inputs() > kGradientInputs) types.push_back(c.type(1));
  return types;
}

OutputTypes relu_sums_shape(const ShapeContext& c) {
  const OutputType channels(Shape{c.input(1).back()}, c.dtype(2));
  return {c.type(1), channels, channels};
}

// f32 tensors into which a kernel for 16 bits widens its own. They come after the kernel's other
// workspace.
class WidenedImages {
 public:
  WidenedImages(DType dtype, const BatchNormExtent& e, std::int64_t before)
      : conversion_(kernels::half_conversion(dtype)),
        elements_(e.rows * e.channels),
        before_(before) {}

  std::int64_t bytes(int images) const { return (before_ + images * elements_) * kFloat; }
  // Image k, uninitialised.
  float* image(const KernelPointers& p, int k) const {
    return reinterpret_cast<float*>(p.workspace()) + before_ + k * elements_;
  }
  float* widen(const KernelPointers& p, int k, const void* from) const {
    conversion_.widen(static_cast<const std::uint16_t*>(from), image(p, k), elements_);
    return image(p, k);
  }
  void narrow(const float* from, void* to) const {
    conversion_.narrow(from, static_cast<std::uint16_t*>(to), elements_);
  }
  std::int64_t elements() const { return elements_; }

 private:
  static constexpr std::int64_t kFloat = 4;
  kernels::HalfConversion conversion_;
  std::int64_t elements_, before_;
};

// The factors of x. A batch norm that trains first computes the moments.
template <bool trained, class T>
kernels::Channels<T> channels_of(const KernelPointers& p, const T* x, const BatchNormExtent& e,
                                 double epsilon) {
  const T small = static_cast<T>(epsilon);
  if constexpr (!trained) return {p.input<T>(3), p.input<T>(4), p.input<T>(1), small};
  T *const mean = p.output<T>(1), *const variance = p.output<T>(2);
  kernels::moments(x, e.rows, e.channels, mean, variance, reinterpret_cast<T*>(p.workspace()));
  for (std::int64_t c = 0; c < e.channels; ++c) variance[c] /= static_cast<T>(e.rows);
  return {mean, variance, p.input<T>(1), small};
}

template <class T>
const T* shortcut_of(const KernelPointers& p, bool trained) {
  const std::size_t inputs = forward_inputs(trained);
  return p.inputs() > inputs ? p.input<T>(inputs) : nullptr;
}

// Rounds to 16 bits where the graph does.
template <bool trained, bool relu>
KernelRun forward_of_half(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(0).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  const WidenedImages wide(plan.dtype(), e, kernels::moment_scratch(e.rows, e.channels));
  plan.workspace(wide.bytes(2));
  return [=](const KernelPointers& p) {
    float* const y = wide.widen(p, 0, p.input<void>(0));
    const auto by = channels_of<trained, float>(p, y, e, epsilon);
    const auto* const shortcut = shortcut_of<std::uint16_t>(p, trained);
    kernels::normalise(y, e.rows, e.channels, by, p.input<float>(2), y,
                       {.relu = relu && !shortcut});
    wide.narrow(y, p.output<void>());
    if (!shortcut) return;
    wide.widen(p, 0, p.output<void>());
    const float* const added = wide.widen(p, 1, shortcut);
    for (std::int64_t i = 0; i < wide.elements(); ++i) {
      const float sum = y[i] + added[i];
      y[i] = relu ? functors::Relu{}(sum) : sum;
    }
    wide.narrow(y, p.output<void>());
  };
}

template <bool trained, bool relu>
KernelRun forward_cpu(KernelPlan& plan) {
  if (is_half(plan.dtype())) return forward_of_half<trained, relu>(plan);
  const BatchNormExtent e(plan.input(0).shape);
  if (trained) plan.workspace(kernels::moment_scratch_bytes(e.rows, e.channels, plan.dtype()));
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const T* const x = p.input<T>(0);
    const auto by = channels_of<trained, T>(p, x, e, epsilon);
    kernels::normalise(x, e.rows, e.channels, by, p.input<T>(2), p.output<T>(),
                       {shortcut_of<T>(p, trained), relu});
  });
}

// The gradients of given moments: y = gamma (x - mean) / sqrt(variance + epsilon) + beta.
template <class T>
void moments_gradients(const KernelPointers& p, std::int64_t channels, T epsilon) {
  const T *const gamma = p.input<T>(2), *const variance = p.input<T>(4);
  const T *const dgamma = p.output<T>(1), *const dbeta = p.output<T>(2);
  for (std::int64_t c = 0; c < channels; ++c) {
    const T spread = variance[c] + epsilon;
    p.output<T>(3)[c] = -(dbeta[c] * gamma[c] / std::sqrt(spread));
    p.output<T>(4)[c] = dgamma[c] * gamma[c] / spread * T(-0.5);
  }
}

// dy + addend, rounded to 16 bits.
void add_halves(const KernelPointers& p, const WidenedImages& wide, std::size_t addend, int scratch,
                float* dy) {
  const float* const added = wide.widen(p, scratch, p.input<void>(addend));
  for (std::int64_t i = 0; i < wide.elements(); ++i) dy[i] += added[i];
  wide.narrow(dy, p.output<void>());
  wide.widen(p, 0, p.output<void>());
}

// The tensors of a gradient in the type in which it is computed.
template <class T>
struct GradientImages {
  const T *dy, *x, *y;  // y: null without ReLU
  T *g, *dx;            // g: the gradient of ReLU; may be dy, or dx
};

template <bool trained, class T>
void compute_gradient(const KernelPointers& p, const GradientImages<T>& images,
                      const BatchNormExtent& e, double epsilon) {
  const auto [n, c] = e;
  const T *const mean = p.input<T>(3), *const variance = p.input<T>(4);
  T *const dgamma = p.output<T>(1), *const dbeta = p.output<T>(2);
  T* const scratch = reinterpret_cast<T*>(p.workspace());
  if (images.y)
    kernels::relu_gradient_sums(images.dy, images.y, images.x, mean, n, c, images.g, dbeta, dgamma,
                                scratch);
  else
    kernels::gradient_sums(images.dy, images.x, mean, n, c, dbeta, dgamma, scratch);
  const T* const g = images.y ? images.g : images.dy;
  const T small = static_cast<T>(epsilon);
  const kernels::Channels<T> by{mean, variance, p.input<T>(2), small};
  if (trained)
    kernels::trained_input_gradient(g, images.x, n, c, by, dbeta, dgamma, static_cast<T>(n),
                                    images.dx);
  else
    kernels::given_input_gradient(g, n, c, by, images.dx);
  for (std::int64_t i = 0; i < c; ++i) dgamma[i] /= std::sqrt(variance[i] + small);
  if (!trained) moments_gradients(p, c, small);
}

template <bool trained>
KernelRun gradient_of_half(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  const WidenedImages wide(plan.dtype(), e, kernels::moment_scratch(e.rows, e.channels));
  plan.workspace(wide.bytes(3));
  return [=, of = fused_gradient_inputs(plan)](const KernelPointers& p) {
    float* const dy = wide.widen(p, 0, p.input<void>(0));
    const float* const x = wide.widen(p, 1, p.input<void>(1));
    if (of.addend) add_halves(p, wide, of.addend, 2, dy);
    const float* const y = of.y ? wide.widen(p, 2, p.input<void>(of.y)) : nullptr;
    // dx overwrites g, unless g is an output, too.
    float* const dx = p.outputs() > gradient_outputs(trained) ? wide.image(p, 2) : dy;
    compute_gradient<trained, float>(p, {dy, x, y, dy, dx}, e, epsilon);
    if (dx != dy) wide.narrow(dy, p.output<void>(gradient_outputs(trained)));
    wide.narrow(dx, p.output<void>());
  };
}

KernelRun relu_sums_cpu(KernelPlan& plan) {
  const BatchNormExtent e(plan.input(1).shape);
  plan.workspace(kernels::moment_scratch_bytes(e.rows, e.channels, plan.dtype()));
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    T* const dgamma = p.output<T>(1);
    kernels::relu_gradient_sums(p.input<T>(0), p.input<T>(4), p.input<T>(1), p.input<T>(2), e.rows,
                                e.channels, p.output<T>(0), p.output<T>(2), dgamma,
                                reinterpret_cast<T*>(p.workspace()));
    for (std::int64_t i = 0; i < e.channels; ++i)
      dgamma[i] /= std::sqrt(p.input<T>(3)[i] + static_cast<T>(epsilon));
  });
}

// The reference kernel of a pointwise op, on equal tensors.
KernelRun pointwise_reference(const Op& op, const KernelPlan& plan, const TensorType& image) {
  return reference_of_part(op, plan, std::vector(static_cast<std::size_t>(op.inputs), image),
                           {image});
}

WorkRange all_elements(const TensorType& image) { return {0, image.shape.elements()}; }

template <bool trained, bool relu>
KernelRun forward_reference(KernelPlan& plan) {
  if (is_half(plan.dtype())) return forward_of_half<trained, relu>(plan);
  const TensorType image = plan.input(0), channels = plan.input(1);
  std::vector<TensorType> inputs(forward_inputs(trained), channels), outputs{image};
  inputs[0] = image;
  if (trained) outputs.insert(outputs.end(), 2, channels);
  const Op& norm = trained ? kBatchNormTrain : kBatchNormInference;
  return [range = whole_range(norm, 0, inputs, outputs), all = all_elements(image),
          normalise = reference_of_part(norm, plan, inputs, outputs),
          add = pointwise_reference(kAdd, plan, image),
          rectify = pointwise_reference(kRelu, plan, image)](const KernelPointers& p) {
    const std::size_t own = forward_inputs(trained);
    normalise(
        KernelPointers(p.mutable_inputs().first(own), p.all_outputs(), nullptr, range, p.step()));
    void* y[2] = {p.all_outputs()[0], p.inputs() > own ? p.mutable_inputs()[own] : nullptr};
    const std::span to(y, 1);
    if (y[1]) add(KernelPointers(y, to, nullptr, all, p.step()));
    if (relu) rectify(KernelPointers(to, to, nullptr, all, p.step()));
  };
}

template <bool trained>
KernelRun fused_gradient_reference(KernelPlan& plan) {
  if (is_half(plan.dtype())) return gradient_of_half<trained>(plan);
  const TensorType image = plan.input(1), channels = plan.input(2);
  std::vector<TensorType> inputs(kGradientInputs, channels),
      outputs(gradient_outputs(trained), channels);
  inputs[0] = inputs[1] = outputs[0] = image;
  const Op& grad = trained ? kBatchNormTrainGrad : kBatchNormInferenceGrad;
  return [range = whole_range(grad, 0, inputs, outputs), all = all_elements(image),
          gradient = reference_of_part(grad, plan, inputs, outputs),
          mask = pointwise_reference(kReluGrad, plan, image),
          add = pointwise_reference(kAdd, plan, image),
          of = fused_gradient_inputs(plan)](const KernelPointers& p) {
    const std::size_t own = gradient_outputs(trained);
    void* in[kGradientInputs];
    std::ranges::copy(p.mutable_inputs().first(kGradientInputs), in);
    const auto apply = [&](const KernelRun& op, std::size_t other) {
      void* const terms[2] = {in[0], p.mutable_inputs()[other]};
      in[0] = p.all_outputs()[p.outputs() > own ? own : 0];
      op(KernelPointers(terms, std::span(in, 1), nullptr, all, p.step()));
    };
    if (of.addend) apply(add, of.addend);
    if (of.y) apply(mask, of.y);
    gradient(KernelPointers(in, p.all_outputs().first(own), nullptr, range, p.step()));
  };
}

KernelRun relu_sums_reference(KernelPlan& plan) {
  const TensorType image = plan.input(1), channels = plan.input(2);
  return [all = all_elements(image), mask = pointwise_reference(kReluGrad, plan, image),
          sums = reference_of_part(kBatchNormSums, plan, {image, image, channels, channels},
                                   {channels, channels})](const KernelPointers& p) {
    const auto in = p.mutable_inputs();
    void* const masked[2] = {in[0], in[4]};
    void* const summed[4] = {p.all_outputs()[0], in[1], in[2], in[3]};
    mask(KernelPointers(masked, p.all_outputs().first(1), nullptr, all, p.step()));
    sums(KernelPointers(summed, p.all_outputs().subspan(1), nullptr, {0, 1}, p.step()));
  };
}

// The ops differ only in the arguments.
Op fused_op(const char* name, ShapeFunction shape, CpuKernel cpu, CpuKernel reference,
            void (*rematerialise)(Surroundings&) = nullptr) {
  return {.name = name,
          .inputs = kVariadicInputs,
          .shape = shape,
          .no_gradient = kMadeByPlans,
          .rematerialise = rematerialise,
          .in_place = InPlace::kFirst,
          .cpu = cpu,
          .reference = reference,
          .half = true};
}

}  // namespace

FusedGradientInputs fused_gradient_inputs(const KernelPlan& plan) {
  FusedGradientInputs found;
  for (std::size_t i = kGradientInputs; i < plan.inputs(); ++i) {
    const bool is_image = plan.input(i).shape.rank() > 1;
    (!is_image ? found.beta : found.y == 0 ? found.y : found.addend) = i;
  }
  return found;
}

KernelRun train_on_host(KernelPlan& plan) { return forward_cpu<true, false>(plan); }

template <bool trained>
KernelRun gradient_on_host(KernelPlan& plan) {
  if (is_half(plan.dtype())) return gradient_of_half<trained>(plan);
  const BatchNormExtent e(plan.input(1).shape);
  plan.workspace(kernels::moment_scratch_bytes(e.rows, e.channels, plan.dtype()));
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  const FusedGradientInputs of = fused_gradient_inputs(plan);
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    const std::size_t own = gradient_outputs(trained);
    T* const g = p.output<T>(p.outputs() > own ? own : 0);
    const T *const dy = p.input<T>(0), *const y = of.y ? p.input<T>(of.y) : nullptr;
    if (of.addend)
      for (std::int64_t i = 0; i < e.rows * e.channels; ++i)
        g[i] = dy[i] + p.input<T>(of.addend)[i];
    compute_gradient<trained, T>(p, {of.addend ? g : dy, p.input<T>(1), y, g, p.output<T>()}, e,
                                 epsilon);
  });
}
template KernelRun gradient_on_host<true>(KernelPlan& plan);
template KernelRun gradient_on_host<false>(KernelPlan& plan);

const Op kFusedBatchNormTrain = fused_op("FusedBatchNormTrain", fused_forward_shape<true>,
                                         forward_cpu<true, false>, forward_reference<true, false>);
const Op kFusedBatchNormTrainRelu =
    fused_op("FusedBatchNormTrainRelu", fused_forward_shape<true>, forward_cpu<true, true>,
             forward_reference<true, true>, rematerialise_batch_norm);
const Op kFusedBatchNormInference =
    fused_op("FusedBatchNormInference", fused_forward_shape<false>, forward_cpu<false, false>,
             forward_reference<false, false>);
const Op kFusedBatchNormInferenceRelu =
    fused_op("FusedBatchNormInferenceRelu", fused_forward_shape<false>, forward_cpu<false, true>,
             forward_reference<false, true>, rematerialise_batch_norm);
const Op kFusedBatchNormTrainGrad =
    fused_op("FusedBatchNormTrainGrad", fused_gradient_shape<true>, gradient_on_host<true>,
             fused_gradient_reference<true>);
const Op kFusedBatchNormInferenceGrad =
    fused_op("FusedBatchNormInferenceGrad", fused_gradient_shape<false>, gradient_on_host<false>,
             fused_gradient_reference<false>);

const Op kReluBatchNormSums{.name = "ReluBatchNormSums",
                            .inputs = 5,
                            .shape = relu_sums_shape,
                            .no_gradient = kMadeByPlans,
                            .in_place = InPlace::kFirst,
                            .cpu = relu_sums_cpu,
                            .reference = relu_sums_reference,
                            .cpu_only = "devices on GPUs have one shard"};

}  // namespace belfry
