#include "belfry/ops/pointwise/where.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/broadcast.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/bits.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/sum_to.h"

namespace belfry {
namespace {

OutputTypes where_shape(const ShapeContext& c) {
  c.require(c.dtype(0) == DType::kBool, "the condition is ", name_of(c.dtype(0)),
            ", not bool; compare it, as in not_equal(x, 0)");
  c.require(c.dtype(1) == c.dtype(2), "chooses from ", name_of(c.dtype(1)), " and ",
            name_of(c.dtype(2)), "; cast one");
  const Shape values = broadcast_shapes(c, c.input(1), c.input(2));
  return {{broadcast_shapes(c, c.input(0), values), c.dtype(1)}};
}

// The shape of two tensors that fit.
Shape joined(const Shape& a, const Shape& b) {
  Shape shape = a.rank() < b.rank() ? b : a;
  const Shape& other = a.rank() < b.rank() ? a : b;
  for (std::size_t back = 1; back <= other.rank(); ++back) {
    std::int64_t& dim = shape[shape.rank() - back];
    if (dim == 1 || (dim == kUnknownSize && other[other.rank() - back] != 1))
      dim = other[other.rank() - back];
  }
  return shape;
}

std::vector<Output> where_gradient(const Node& node, std::span<const Output> grads) {
  const Output condition = node.input(0), a = node.input(1), b = node.input(2), g = grads[0];
  return {{},
          sum_to(where(condition, g, 0.0), a, joined(condition.shape(), b.shape())),
          sum_to(where(condition, 0.0, g), b, joined(condition.shape(), a.shape()))};
}

// An operand seen along the output, in rows of by.inner elements.
struct Lined {
  Lined(const Shape& x, const Shape& out) : by(x.dims(), out.dims()) {}
  // The place of output element i; `run` becomes at most the elements left in its row.
  std::int64_t at(std::int64_t i, std::int64_t& run) const {
    const std::int64_t row = i / by.inner, column = i - row * by.inner;
    run = std::min(run, by.inner - column);
    return by.offsets(row).a + (by.a_runs ? column : 0);
  }
  kernels::Broadcast by;
};

// n elements, along which each operand advances or stays in place.
template <class Bits, bool condition_runs, bool a_runs, bool b_runs>
BELFRY_KERNEL void select(std::int64_t n, const bool* condition, const Bits* a, const Bits* b,
                          Bits* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const Bits left = a[a_runs ? i : 0], right = b[b_runs ? i : 0];
    y[i] = condition[condition_runs ? i : 0] ? left : right;
  }
}

template <class Bits>
using Select = void (*)(std::int64_t, const bool*, const Bits*, const Bits*, Bits*);

template <class Bits, bool condition_runs, bool a_runs>
Select<Bits> chosen(bool b_runs) {
  return b_runs ? select<Bits, condition_runs, a_runs, true>
                : select<Bits, condition_runs, a_runs, false>;
}
template <class Bits>
Select<Bits> chosen(bool condition_runs, bool a_runs, bool b_runs) {
  if (condition_runs)
    return a_runs ? chosen<Bits, true, true>(b_runs) : chosen<Bits, true, false>(b_runs);
  return a_runs ? chosen<Bits, false, true>(b_runs) : chosen<Bits, false, false>(b_runs);
}

KernelRun where_cpu(KernelPlan& plan) {
  const auto lined = [&](std::size_t i) { return Lined(plan.input(i).shape, plan.output().shape); };
  return visit_bits(plan.dtype(), [&]<class Bits>(Bits) -> KernelRun {
    return [condition = lined(0), a = lined(1), b = lined(2)](const KernelPointers& p) {
      const auto run = chosen<Bits>(condition.by.a_runs, a.by.a_runs, b.by.a_runs);
      for (std::int64_t i = p.begin(); i < p.end();) {
        std::int64_t n = p.end() - i;
        const std::int64_t c_at = condition.at(i, n), a_at = a.at(i, n), b_at = b.at(i, n);
        run(n, p.input<bool>(0) + c_at, p.input<Bits>(1) + a_at, p.input<Bits>(2) + b_at,
            p.output<Bits>() + i);
        i += n;
      }
    };
  });
}

KernelRun where_reference(KernelPlan& plan) {
  return visit_bits(plan.dtype(), [&]<class Bits>(Bits) -> KernelRun {
    return [condition = plan.input(0).shape, a = plan.input(1).shape, b = plan.input(2).shape,
            out = plan.output().shape](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<Bits>()[i] = p.input<bool>(0)[broadcast_index(i, out, condition)]
                                  ? p.input<Bits>(1)[broadcast_index(i, out, a)]
                                  : p.input<Bits>(2)[broadcast_index(i, out, b)];
    };
  });
}

}  // namespace

const Op kWhere{.name = "Where",
                .inputs = 3,
                .shape = where_shape,
                .gradient = where_gradient,
                .split = WorkSplit::kElements,
                .shards = pointwise_shards,
                .in_place = InPlace::kAny,
                .cpu = where_cpu,
                .reference = where_reference,
                .half = true};

Output where(Output condition, Operand a, Operand b, At at) {
  return condition.graph().add(kWhere, {condition, a.beside(b), b.beside(a)}, at).output();
}

}  // namespace belfry
