// Arithmetic on tensors as C++ operators: y = 1.0 / (1.0 + exp(-x)).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// One side of an operator: a tensor, a variable, or a C++ scalar, which takes the dtype of the
// other side (rounded; for integer types it must be exact). Records the line where it is made.
class Operand {
 public:
  Operand(Output output,
          SourceLine at = SourceLine::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : output_(output), site_(at) {}
  Operand(Variable variable,
          SourceLine at = SourceLine::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : output_(variable), site_(at) {}
  Operand(double scalar,
          SourceLine at = SourceLine::here(__builtin_FILE(), __builtin_LINE()))  // NOLINT
      : scalar_(scalar), site_(at) {}

  // Empty for a scalar.
  Output output() const { return output_; }
  double scalar() const { return scalar_; }
  SourceLine site() const { return site_; }

  // The tensor itself, or a constant with the dtype of `other`, in its graph. Throws
  // InvalidArgument if both are scalars.
  Output beside(const Operand& other) const;

 private:
  Output output_;
  double scalar_ = 0;
  SourceLine site_;
};

Output operator+(Operand a, Operand b);
Output operator-(Operand a, Operand b);
Output operator*(Operand a, Operand b);
Output operator/(Operand a, Operand b);
Output operator-(Operand x);

}  // namespace belfry
