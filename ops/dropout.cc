#include "belfry/ops/dropout.h"

#include "belfry/framework/core_ops/random.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/counter.h"

namespace belfry {
namespace {

using Mask = std::uint8_t;

void require_rate(const ShapeContext& c) {
  const double rate = c.options<DropoutOptions>().rate;
  c.require(rate >= 0 && rate < 1, "the rate must be in [0, 1), not ", rate);
}

OutputTypes dropout_shape(const ShapeContext& c) {
  c.require_floating(0);
  require_rate(c);
  return {c.type(0), {c.input(0), DType::kU8}};
}

OutputTypes dropout_grad_shape(const ShapeContext& c) {
  c.require_floating(0);
  require_rate(c);
  c.require(c.dtype(1) == DType::kU8 && c.input(0).compatible(c.input(1)),
            "needs a gradient and its u8 mask, not ", c.type(0), " and ", c.type(1));
  return {c.type(0)};
}

Output dropout_grad(Output dy, Output mask, const DropoutOptions& options) {
  return dy.graph().add(kDropoutGrad, {dy, mask}, {}, NodeOptions(options)).output();
}

std::vector<Output> dropout_gradient(const Node& node, std::span<const Output> grads) {
  return {dropout_grad(grads[0], node.output(1), node.options<DropoutOptions>())};
}

std::vector<Output> dropout_grad_gradient(const Node& node, std::span<const Output> grads) {
  return {dropout_grad(grads[0], node.input(1), node.options<DropoutOptions>()), {}};
}

// Which elements of a step stay. first: the number of element 0.
struct MaskDraw {
  std::uint64_t key, step, limit;
  std::int64_t first;
  BELFRY_HD Mask operator()(std::int64_t i) const {
    return kernels::mix(key, step, static_cast<std::uint64_t>(first + i)) >= limit;
  }
};

BELFRY_KERNEL void draw_mask(MaskDraw draw, std::int64_t begin, std::int64_t end, Mask* mask) {
  for (std::int64_t i = begin; i < end; ++i) mask[i] = draw(i);
}

void plain_draw(MaskDraw draw, std::int64_t begin, std::int64_t end, Mask* mask) {
  for (std::int64_t i = begin; i < end; ++i) mask[i] = draw(i);
}

// Multiplies dropped elements by zero, which keeps NaN.
template <class T>
BELFRY_KERNEL void apply_mask(const T* x, const Mask* mask, T scale, std::int64_t begin,
                              std::int64_t end, T* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] * (mask[i] != 0 ? scale : T(0));
}

template <class T>
void plain_mask(const T* x, const Mask* mask, T scale, std::int64_t begin, std::int64_t end, T* y) {
  for (std::int64_t i = begin; i < end; ++i) y[i] = mask[i] ? x[i] * scale : x[i] * 0;
}

using DrawMask = void (*)(MaskDraw, std::int64_t, std::int64_t, Mask*);
template <class T>
using Apply = void (*)(const T*, const Mask*, T, std::int64_t, std::int64_t, T*);

template <class T>
KernelRun dropout_kernel(const KernelPlan& plan, DrawMask draw, Apply<T> apply) {
  const auto& options = plan.options<DropoutOptions>();
  const bool numbered = plan.batch().numbered;
  const Shape& shape = plan.output().shape;
  const std::int64_t row = numbered ? shape.product(1, shape.rank()) : 0;
  return [key = random_key(plan.node(), numbered), row, limit = options.threshold(),
          scale = static_cast<T>(options.scale()), draw, apply](const KernelPointers& p) {
    Mask* const mask = p.output<Mask>(1);
    draw({key, p.step(), limit, p.first_row() * row}, p.begin(), p.end(), mask);
    apply(p.input<T>(0), mask, scale, p.begin(), p.end(), p.output<T>());
  };
}

template <class T>
KernelRun dropout_grad_kernel(const KernelPlan& plan, Apply<T> apply) {
  return [scale = static_cast<T>(plan.options<DropoutOptions>().scale()),
          apply](const KernelPointers& p) {
    apply(p.input<T>(0), p.input<Mask>(1), scale, p.begin(), p.end(), p.output<T>());
  };
}

KernelRun dropout_cpu(KernelPlan& plan) {
  return visit_floating(
      plan.dtype(), [&]<class T>(T) { return dropout_kernel<T>(plan, draw_mask, apply_mask<T>); });
}
KernelRun dropout_reference(KernelPlan& plan) {
  return visit_floating(
      plan.dtype(), [&]<class T>(T) { return dropout_kernel<T>(plan, plain_draw, plain_mask<T>); });
}
KernelRun dropout_grad_cpu(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return dropout_grad_kernel<T>(plan, apply_mask<T>); });
}
KernelRun dropout_grad_reference(KernelPlan& plan) {
  return visit_floating(plan.dtype(),
                        [&]<class T>(T) { return dropout_grad_kernel<T>(plan, plain_mask<T>); });
}

}  // namespace

const Op kDropout{.name = "Dropout",
                  .inputs = 1,
                  .shape = dropout_shape,
                  .gradient = dropout_gradient,
                  .split = WorkSplit::kElements,
                  .shards = pointwise_shards,
                  .in_place = InPlace::kFirst,
                  .random = true,
                  .cpu = dropout_cpu,
                  .reference = dropout_reference};

const Op kDropoutGrad{.name = "DropoutGrad",
                      .inputs = 2,
                      .shape = dropout_grad_shape,
                      .gradient = dropout_grad_gradient,
                      .split = WorkSplit::kElements,
                      .shards = pointwise_shards,
                      .in_place = InPlace::kFirst,
                      .cpu = dropout_grad_cpu,
                      .reference = dropout_grad_reference};

Output dropout(Output x, double rate, At at) {
  return x.graph().add(kDropout, {x}, at, NodeOptions(DropoutOptions{rate})).output();
}

}  // namespace belfry
