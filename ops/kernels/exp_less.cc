#include "belfry/ops/kernels/exp_less.h"

#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {
namespace {

template <class T>
BELFRY_KERNEL void exp_less_loop(const T* x, T shift, std::int64_t n, T* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = math::exp(x[i] - shift);
}

}  // namespace

template <class T>
void exp_less(const T* x, T shift, std::int64_t n, T* y) {
  exp_less_loop(x, shift, n, y);
}

template void exp_less(const float*, float, std::int64_t, float*);
template void exp_less(const double*, double, std::int64_t, double*);

}  // namespace belfry::kernels
