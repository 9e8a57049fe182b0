// The functor of a truth function, for hosts and GPUs.
#pragma once
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/functors_impl.h"

namespace belfry {

// Calls f with the functor.
template <class F>
auto visit_truth(TruthFunction function, const F& f) {
  switch (function) {
    case TruthFunction::kEqual: return f(functors::Equal{});
    case TruthFunction::kNotEqual: return f(functors::NotEqual{});
    case TruthFunction::kLess: return f(functors::Less{});
    case TruthFunction::kLessEqual: return f(functors::LessEqual{});
    case TruthFunction::kAnd: return f(functors::And{});
    default: return f(functors::Or{});
  }
}

}  // namespace belfry
