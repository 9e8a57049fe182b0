// First values of variables.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/variable.h"

namespace belfry {

// Where the fans of a weight are.
enum class WeightAxes : std::uint8_t {
  kFilters,   // [in, out] of matrices; [out, kh, kw, in] of filters: in * kh * kw and out * kh * kw
  kMatrices,  // stacks of matrices, such as [experts, in, out]: the last two dimensions
};

namespace init {
Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer value(Tensor tensor);
Initializer uniform(double low, double high);
Initializer normal(double stddev);
// Normal, with the numbers beyond two deviations drawn again, as in TensorFlow. What is left has
// the deviation 0.88 * stddev.
Initializer truncated_normal(double stddev);
// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
Initializer glorot_uniform(WeightAxes axes = WeightAxes::kFilters);
// Normal with variance 2 / fan_in (He et al. 2015).
Initializer he_normal(WeightAxes axes = WeightAxes::kFilters);
}  // namespace init

}  // namespace belfry
