// AdamUpdate: a step of Adam (Kingma and Ba 2015), in TensorFlow's form, or of AdamW (Loshchilov
// and Hutter 2019), in PyTorch's.
#pragma once
#include <string>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

// Epsilon is added to sqrt(v), as in TensorFlow, or to sqrt(v / (1 - beta2^t)), as in PyTorch.
enum class AdamEpsilon { kToRoot, kToCorrectedRoot };

// Decoupled weight decay, as AdamW has it, unless it is coupled.
struct AdamDecay {
  AdamDecay(double of = 0, bool is_coupled = false) : share(of), coupled(is_coupled) {}  // NOLINT

  std::string str() const { return coupled && share != 0 ? cat(share, " coupled") : cat(share); }

  double share;  // finite, >= 0
  bool coupled;
};

struct AdamUpdateOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  AdamDecay weight_decay = {};
  AdamEpsilon form = AdamEpsilon::kToRoot;
  PartFrom part_from = {};
};

// With t = step, a scalar i64 that counts updates from 1, and g = gradient, or with coupled decay
// gradient + weight_decay * variable:
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g^2
//   variable -= rate * weight_decay * variable    (decoupled)
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
