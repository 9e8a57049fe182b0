// Pointwise ops: tests of them all find a new one in the registry.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "belfry/ops/gelu.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {

// Ops whose shape function is floating_pointwise(), but for those with options, which are named
// here. A new op with options has a shape function of its own.
inline std::vector<const Op*> pointwise_ops() {
  std::vector<const Op*> ops = all_ops();
  std::erase_if(ops, [](const Op* op) {
    return op->shape != floating_pointwise || op == &kGelu || op == &kGeluGrad;
  });
  return ops;
}

inline Builder pointwise_builder(const Op& op) {
  return [&op](Inputs x) { return x[0].graph().add(op, x).output(); };
}

// Inputs between -limit and limit. If the op gives NaN there, as log does, inputs between limit / 8
// and limit.
inline std::vector<Tensor> pointwise_inputs(const Op& op, std::int64_t elements, double limit) {
  std::vector<Tensor> inputs;
  for (const double low : {-limit, limit / 8}) {
    inputs.clear();
    for (int i = 0; i < op.inputs; ++i)
      inputs.push_back(random_values({elements}, low, limit, static_cast<unsigned>(i) + 1));
    const std::vector<double> results = doubles(compute(pointwise_builder(op), inputs));
    if (std::ranges::none_of(results, [](double y) { return std::isnan(y); })) break;
  }
  return inputs;
}

}  // namespace belfry
