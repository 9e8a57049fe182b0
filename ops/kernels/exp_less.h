// The terms of a softmax.
#pragma once
#include <cstdint>

namespace belfry::kernels {

// y[i] = e^(x[i] - shift) for n elements of f32 or f64; y may be x.
template <class T>
void exp_less(const T* x, T shift, std::int64_t n, T* y);

}  // namespace belfry::kernels
