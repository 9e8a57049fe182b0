// First values of variables.
#pragma once
#include "belfry/framework/graph/variable.h"

namespace belfry {

namespace init {
Initializer zeros();
Initializer ones();
Initializer constant(double value);
Initializer value(Tensor tensor);
Initializer uniform(double low, double high);
Initializer normal(double stddev);
// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010). For [in, out] matrices the
// fans are the dimensions; for [out, kh, kw, in] filters they are in * kh * kw and out * kh * kw.
Initializer glorot_uniform();
// Normal with variance 2 / fan_in (He et al. 2015).
Initializer he_normal();
}  // namespace init

}  // namespace belfry
