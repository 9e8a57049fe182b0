#include "belfry/ops/pointwise/maximum.h"

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/extremes.h"
#include "belfry/ops/pointwise/binary_impl.h"
#include "belfry/ops/pointwise/functors_impl.h"

namespace belfry {
namespace {

Output above(Output a, Output b) { return a.graph().add(kAbove, {a, b}).output(); }

std::vector<Output> maximum_gradient(const Node& node, std::span<const Output> grads) {
  const Output a = node.input(0), b = node.input(1);
  return {gradient_of_operand(node, 0, grads[0] * above(a, b)),
          gradient_of_operand(node, 1, grads[0] * above(b, a))};
}

std::vector<Output> minimum_gradient(const Node& node, std::span<const Output> grads) {
  const Output a = node.input(0), b = node.input(1);
  return {gradient_of_operand(node, 0, grads[0] * above(b, a)),
          gradient_of_operand(node, 1, grads[0] * above(a, b))};
}

std::vector<Output> above_gradient(const Node&, std::span<const Output>) { return {{}, {}}; }

struct PlainMaximum {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a + b;
    return a < b ? b : a;
  }
};
struct PlainMinimum {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a + b;
    return b < a ? b : a;
  }
};
struct PlainAbove {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a || b != b) return a + b;
    return a == b ? T(0.5) : T(a > b);
  }
};

template <class F>
constexpr CpuKernel kMaximumCpu = broadcast_kernel<Numbers::kAll, F>;
template <class F>
constexpr CpuKernel kMaximumReference = plain_broadcast_kernel<Numbers::kAll, F>;

}  // namespace

const Op kMaximum{.name = "Maximum",
                  .inputs = 2,
                  .shape = binary_shape<Numbers::kAll>,
                  .gradient = maximum_gradient,
                  .split = WorkSplit::kElements,
                  .shards = pointwise_shards,
                  .in_place = InPlace::kAny,
                  .cpu = kMaximumCpu<kernels::Larger>,
                  .reference = kMaximumReference<PlainMaximum>};
const Op kMinimum{.name = "Minimum",
                  .inputs = 2,
                  .shape = binary_shape<Numbers::kAll>,
                  .gradient = minimum_gradient,
                  .split = WorkSplit::kElements,
                  .shards = pointwise_shards,
                  .in_place = InPlace::kAny,
                  .cpu = kMaximumCpu<kernels::Smaller>,
                  .reference = kMaximumReference<PlainMinimum>};
const Op kAbove{.name = "Above",
                .inputs = 2,
                .shape = binary_shape<Numbers::kFloating>,
                .gradient = above_gradient,
                .split = WorkSplit::kElements,
                .shards = pointwise_shards,
                .in_place = InPlace::kAny,
                .cpu = broadcast_kernel<Numbers::kFloating, functors::Above>,
                .reference = plain_broadcast_kernel<Numbers::kFloating, PlainAbove>};

Output maximum(Operand a, Operand b, At at) {
  const Output left = a.beside(b), right = b.beside(a);
  return left.graph().add(kMaximum, {left, right}, at).output();
}
Output minimum(Operand a, Operand b, At at) {
  const Output left = a.beside(b), right = b.beside(a);
  return left.graph().add(kMinimum, {left, right}, at).output();
}

}  // namespace belfry
