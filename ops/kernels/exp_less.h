// The terms of a softmax.
#pragma once
#include <algorithm>
#include <cstdint>

#include "belfry/framework/kernels/reduce.h"

namespace belfry::kernels {

// y[i] = e^(x[i] - shift) for n elements of f32 or f64; y may be x.
template <class T>
void exp_less(const T* x, T shift, std::int64_t n, T* y);

// The largest of n elements; NaN if one is.
template <class T>
T largest_of_row(const T* x, std::int64_t n) {
  T result;
  row_maxima(x, n, &result, 0, 1);
  return result;
}

// Rows are cut into blocks, whose exponentials fit into a buffer on the stack.
inline constexpr std::int64_t kExponentials = 1024;

// The sum of e^(x[i] - shift): those of the blocks are added in order.
template <class T>
T sum_of_exponentials(const T* x, T shift, std::int64_t n) {
  T buffer[kExponentials], sum = 0;
  for (std::int64_t i = 0; i < n; i += kExponentials) {
    const std::int64_t count = std::min(n - i, kExponentials);
    exp_less(x + i, shift, count, buffer);
    sum += kernels::sum(buffer, count);
  }
  return sum;
}

}  // namespace belfry::kernels
