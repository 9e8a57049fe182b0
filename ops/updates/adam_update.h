// AdamUpdate: a step of Adam (Kingma and Ba 2015), in TensorFlow's form, or of AdamW (Loshchilov
// and Hutter 2019), in PyTorch's.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

// Epsilon is added to sqrt(v), as in TensorFlow, or to sqrt(v / (1 - beta2^t)), as in PyTorch.
enum class AdamEpsilon { kToRoot, kToCorrectedRoot };

struct AdamUpdateOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // finite, >= 0
  AdamEpsilon form = AdamEpsilon::kToRoot;
  PartFrom part_from = {};
};

// With t = step, a scalar i64 that counts updates from 1:
//   m = beta1 * m + (1 - beta1) * gradient
//   v = beta2 * v + (1 - beta2) * gradient^2
//   variable -= rate * weight_decay * variable
//   variable -= rate * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)
// kToCorrectedRoot has epsilon * sqrt(1 - beta2^t) in place of epsilon.
// rate is a scalar; everything but the step and the gradient's factor has the variable's type, f32
// or f64. Outputs are the new values of variable, m and v. A run fails with InvalidArgument if t <
// 1, unless the factor is 0.
extern const Op kAdamUpdate;
Node& adam_update(Variable variable, Variable m, Variable v, Output step, ScaledGradient gradient,
                  Output rate, AdamUpdateOptions options = {}, At at = {});

// Throws: kernels have found a step below 1.
[[noreturn]] void refuse_adam_step(const Node& node, std::int64_t step);

}  // namespace belfry
