// Compare: truths of two tensors, with broadcasting as in numpy. The result is bool.
#pragma once
#include "belfry/ops/operand.h"

namespace belfry {

// Two tensors of one type, any -> bool.
extern const Op kCompare;

enum class TruthFunction : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kAnd, kOr };

struct CompareOptions {
  TruthFunction function = TruthFunction::kEqual;
};

// Comparisons with NaN are false, but for not_equal.
Output equal(Operand a, Operand b, At at = {});
Output not_equal(Operand a, Operand b, At at = {});
Output less(Operand a, Operand b, At at = {});
Output less_equal(Operand a, Operand b, At at = {});
Output greater(Operand a, Operand b, At at = {});
Output greater_equal(Operand a, Operand b, At at = {});

// Numbers other than 0 count as true.
Output logical_and(Output a, Output b, At at = {});
Output logical_or(Output a, Output b, At at = {});
Output logical_not(Output x, At at = {});

Output isnan(Output x, At at = {});
// Neither NaN nor infinite; floating point only.
Output isfinite(Output x, At at = {});

}  // namespace belfry
