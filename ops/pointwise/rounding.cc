#include "belfry/ops/pointwise/rounding.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/pointwise/functors_impl.h"

namespace belfry {
namespace {

std::vector<Output> rounding_gradient(const Node&, std::span<const Output>) { return {{}}; }

struct PlainFloor {
  template <class T>
  T operator()(T x) const {
    return std::floor(x);
  }
};
struct PlainCeil {
  template <class T>
  T operator()(T x) const {
    return std::ceil(x);
  }
};
struct PlainRound {
  template <class T>
  T operator()(T x) const {
    const T below = std::floor(x), over = x - below;
    if (!(std::abs(x) < T(1e18))) return x;  // an integer, infinite or NaN
    return over > T(0.5) || (over == T(0.5) && std::fmod(below, T(2)) != 0) ? below + 1 : below;
  }
};

Op rounding_op(const char* name, CpuKernel cpu, CpuKernel reference) {
  return {.name = name,
          .inputs = 1,
          .shape = floating_pointwise,
          .gradient = rounding_gradient,
          .split = WorkSplit::kElements,
          .shards = pointwise_shards,
          .in_place = InPlace::kFirst,
          .cpu = cpu,
          .reference = reference};
}

}  // namespace

const Op kFloor = rounding_op("Floor", unary<functors::Floor>, plain_unary<PlainFloor>);
const Op kCeil = rounding_op("Ceil", unary<functors::Ceil>, plain_unary<PlainCeil>);
const Op kRound = rounding_op("Round", unary<functors::Round>, plain_unary<PlainRound>);

Output floor(Output x, At at) { return x.graph().add(kFloor, {x}, at).output(); }
Output ceil(Output x, At at) { return x.graph().add(kCeil, {x}, at).output(); }
Output round(Output x, At at) { return x.graph().add(kRound, {x}, at).output(); }

}  // namespace belfry
