#include "belfry/ops/pointwise/comparisons.h"

#include <limits>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/pointwise/functors_impl.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/pointwise/truth_impl.h"

namespace belfry {
namespace {

OutputTypes compare_shape(const ShapeContext& c) {
  c.require_same_dtype();
  return {{broadcast_shapes(c, c.input(0), c.input(1)), DType::kBool}};
}

// Calls f(T{}) with the type of the operands; bytes of bool are 0 or 1.
template <class F>
auto visit_operands(DType dtype, const F& f) {
  return visit_any(dtype == DType::kBool ? DType::kU8 : dtype, f);
}

KernelRun compare_cpu(KernelPlan& plan) {
  const kernels::Broadcast broadcast(plan.input(0).shape.dims(), plan.input(1).shape.dims());
  return visit_truth(plan.options<CompareOptions>().function, [&]<class F>(F) {
    return visit_operands(plan.input(0).dtype, [&]<class T>(T) -> KernelRun {
      return [broadcast](const KernelPointers& p) {
        kernels::map_broadcast(F{}, broadcast, p.begin(), p.end(), p.output<bool>(), p.input<T>(0),
                               p.input<T>(1));
      };
    });
  });
}

template <class T>
bool plain_truth(TruthFunction function, T a, T b) {
  switch (function) {
    case TruthFunction::kEqual: return a == b;
    case TruthFunction::kNotEqual: return a != b;
    case TruthFunction::kLess: return a < b;
    case TruthFunction::kLessEqual: return a <= b;
    case TruthFunction::kAnd: return a != T(0) && b != T(0);
    case TruthFunction::kOr: return a != T(0) || b != T(0);
  }
  return false;
}

KernelRun compare_reference(KernelPlan& plan) {
  return visit_operands(plan.input(0).dtype, [&]<class T>(T) -> KernelRun {
    return [function = plan.options<CompareOptions>().function, a = plan.input(0).shape,
            b = plan.input(1).shape, out = plan.output().shape](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<bool>()[i] = plain_truth(function, p.input<T>(0)[broadcast_index(i, out, a)],
                                          p.input<T>(1)[broadcast_index(i, out, b)]);
    };
  });
}

Output compare(TruthFunction function, Output a, Output b, const At& at) {
  return a.graph().add(kCompare, {a, b}, at, NodeOptions(CompareOptions{function})).output();
}

Output compare(TruthFunction function, const Operand& a, const Operand& b, const At& at) {
  return compare(function, a.beside(b), b.beside(a), at);
}

}  // namespace

const Op kCompare{.name = "Compare",
                  .inputs = 2,
                  .shape = compare_shape,
                  .no_gradient = "a truth has no derivative",
                  .split = WorkSplit::kElements,
                  .shards = pointwise_shards,
                  .cpu = compare_cpu,
                  .reference = compare_reference};
const StoredOptions<CompareOptions> kStoredCompare(kCompare);

Output equal(Operand a, Operand b, At at) { return compare(TruthFunction::kEqual, a, b, at); }
Output not_equal(Operand a, Operand b, At at) {
  return compare(TruthFunction::kNotEqual, a, b, at);
}
Output less(Operand a, Operand b, At at) { return compare(TruthFunction::kLess, a, b, at); }
Output less_equal(Operand a, Operand b, At at) {
  return compare(TruthFunction::kLessEqual, a, b, at);
}
Output greater(Operand a, Operand b, At at) { return compare(TruthFunction::kLess, b, a, at); }
Output greater_equal(Operand a, Operand b, At at) {
  return compare(TruthFunction::kLessEqual, b, a, at);
}

Output logical_and(Output a, Output b, At at) { return compare(TruthFunction::kAnd, a, b, at); }
Output logical_or(Output a, Output b, At at) { return compare(TruthFunction::kOr, a, b, at); }
Output logical_not(Output x, At at) { return equal(x, 0.0, at); }

Output isnan(Output x, At at) { return compare(TruthFunction::kNotEqual, x, x, at); }
Output isfinite(Output x, At at) {
  return less(abs(x, at.site), std::numeric_limits<double>::infinity(), at);
}

}  // namespace belfry
